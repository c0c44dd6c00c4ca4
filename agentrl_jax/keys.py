"""Random keys: one tuple of integers names every random number; nothing else can change it."""

import hashlib

import numpy as np

from agentrl_jax.trajectories import Key


def key_data(key: Key) -> np.ndarray:
    """Two words, uint32 [2], from (run, step, task, sample, seat, turn).

    Hashed on the host, since a chain of `fold_in` would cost six device dispatches a call; the token's number is mixed
    in on the device (`agentrl_jax.sampling.random_bits`).
    """
    digest = hashlib.blake2b(repr(tuple(map(int, key))).encode(), digest_size=8).digest()
    return np.frombuffer(digest, np.uint32)


def seed_of(*key: int) -> int:
    """A 31-bit seed for hosts and environments."""
    return int(key_data(key)[0] >> np.uint32(1))


def chance_of(*key: int) -> float:
    """A number in [0, 1), for decisions on the host."""
    return seed_of(*key) / 2**31

"""Random keys: a tuple of integers determines every random number."""

import hashlib

import numpy as np

from agentrl_jax.trajectories import RandomKey


def key_data(key: RandomKey) -> np.ndarray:
    """Key data, uint32 [2], from (run, step, task, sample, agent, turn).

    It is hashed on the host, since a chain of `fold_in` would cost six device dispatches per call;
    the token's position is mixed in on the device (`agentrl_jax.hashed_bits.random_bits`).
    """
    digest = hashlib.blake2b(repr(tuple(map(int, key))).encode(), digest_size=8).digest()
    return np.frombuffer(digest, np.uint32)


def seed_of(*key: int) -> int:
    """A 31-bit seed for host code and environments."""
    return int(key_data(key)[0] >> np.uint32(1))


def uniform_of(*key: int) -> float:
    """A uniform number in [0, 1), for decisions on the host."""
    return seed_of(*key) / 2**31

"""The seeds that a run and its environments can have."""

from agentrl_jax.errors import UserError

# JAX's keys use 32 bits of a seed, so a larger one would stand for another's random numbers.
RUN_SEED_END = 2**32
ENV_SEED_END = 2**63


def check_seed(name: str, seed: int, end: int) -> None:
    """Raises UserError, which names the field or flag, for a seed below 0 or from `end` on."""
    if not 0 <= seed < end:
        raise UserError(f"{name} must be from 0 to {end - 1:,}, not {seed:,}")

"""The pages of a generated encyclopedia, and their index."""

from functools import lru_cache

from agentrl_jax.envs.page_index import Page, PageIndex
from agentrl_jax.envs.search.facts import make_world
from agentrl_jax.envs.search.prose import write_pages


@lru_cache(maxsize=2)
def generated_pages(seed: int, pages: int, fillers: int = 3) -> tuple[Page, ...]:
    """The pages of a generated encyclopedia, written once a process."""
    return tuple(write_pages(make_world(seed, pages), fillers))


@lru_cache(maxsize=2)
def generated_index(seed: int, pages: int, fillers: int = 3) -> PageIndex:
    """The index of a generated encyclopedia, built once a process."""
    return PageIndex(generated_pages(seed, pages, fillers))

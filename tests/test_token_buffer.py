"""Prompts that extend each other share their memory and stay what they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_jax.token_buffer import TokenBuffer


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def held_bytes(arrays: list[np.ndarray]) -> int:
    """Of all distinct arrays in memory, of which these are views."""
    owners = {id(x.base): x.base for x in arrays if x.base is not None}
    return sum(owner.nbytes for owner in owners.values())


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 99), max_size=300)), max_size=8))
def test_each_prompt_is_its_prefix_and_its_parts_whatever_is_extended_later(
    steps: list[tuple[bool, list[int]]],
):
    buffer, returned, expected = TokenBuffer(), [ids(1, 2)], [[1, 2]]
    for last, added in steps:
        at = -1 if last else len(returned) // 2
        returned.append(buffer.extend(returned[at], ids(*added), ids(7)))
        expected.append([*expected[at], *added, 7])
    assert [x.tolist() for x in returned] == expected
    assert all(x.dtype == np.int32 for x in returned)


def test_the_memory_of_an_episode_is_linear_in_its_turns():
    def prompts(turns: int) -> list[np.ndarray]:
        buffer, result = TokenBuffer(), [ids(1)]
        for _ in range(turns):
            result.append(buffer.extend(result[-1], np.zeros(20, np.int32), np.zeros(30, np.int32)))
        return result[1:]

    assert held_bytes(prompts(256)) <= 4 * 4 * 256 * 50
    assert sum(x.nbytes for x in prompts(256)) > 60 * 4 * 256 * 50


def test_a_prompt_cannot_be_written_to():
    prompt = TokenBuffer().extend(ids(1, 2), ids(3))
    with pytest.raises(ValueError, match="read-only"):
        prompt[0] = 5

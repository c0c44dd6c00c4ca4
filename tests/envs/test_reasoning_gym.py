"""reasoning-gym's data sets as problems; needs that package."""

import numpy as np
import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed; make test-extras")

from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.code.reasoning_gym_problems import LEFT_OUT, library_entries
from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.snippet import Outcome


def refuse(code: str) -> Outcome:
    raise AssertionError("the library's scores run no code")


def test_the_library_accepts_its_own_answers_and_no_others():
    entries = library_entries()
    assert len(entries) >= 90 and not LEFT_OUT & entries.keys()
    for name in list(entries)[::4]:
        problem = entries[name].generate(np.random.default_rng(1), 0.0)
        assert problem.check(problem.answer, refuse), name
        assert not problem.check("zz", refuse) and not problem.check("", refuse), name


def test_splits_are_by_data_set_and_by_text():
    held_out = {name for name, entry in library_entries().items() if entry.is_held_out}
    assert 10 <= len(held_out) <= 35
    name = sorted(library_entries().keys() - held_out)[0]
    texts = {}
    for split in ("train", "test"):
        env = make("agentrl/ReasoningGym-v0", {"generators": ["chain_sum"], "split": split})
        texts[split] = {env.reset(seed=seed)[0][0].text for seed in range(20)}
    assert not texts["train"] & texts["test"]
    with pytest.raises(UserError, match="held_out"):
        make("agentrl/ReasoningGym-v0", {"generators": [name], "split": "held_out"})
    with pytest.raises(UserError, match="poems"):
        make("agentrl/ReasoningGym-v0", {"generators": ["poems"]})


def test_the_expert_answers_with_the_reference():
    env = make("agentrl/ReasoningGym-v0", {"generators": ["chain_sum", "word_sorting"]})
    assert all(play_scripted_episode(env, "recovering", seed).success for seed in range(6))
    assert not any(play_scripted_episode(env, "random", seed).success for seed in range(6))

"""Examples for a verifier: the prompt about an episode, and the word for its outcome."""

import dataclasses

import pytest
from support.strategy_runs import (
    AGENT,
    RENDERER,
    FixedGroups,
    KeyedTextEngine,
    collect_group,
    expert_actions,
)

from agentrl_jax.algorithms.strategies.episode_scorers import EpisodeQuestion, YesProbability
from agentrl_jax.algorithms.strategies.verifier_examples import VerifierExampleIterator
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.rollout_metrics import episode_stats
from agentrl_jax.workers.pool import Task

SUM = Task(
    "agentrl_jax.envs:agentrl/Arithmetic-v0", 4, {"largest": 1, "operators": "+", "attempts": 1}
)
RIGHT = expert_actions(SUM)[0]
VERIFIER = YesProbability(EpisodeQuestion("{opening}{answer}, right?\n"))


def test_every_episode_becomes_one_example_with_the_outcome_as_its_answer():
    group = collect_group(IndependentEpisodes(6), KeyedTextEngine((RIGHT, "9")), SUM)
    rollouts = FixedGroups([group])
    iterator = VerifierExampleIterator(VERIFIER, rollouts, AGENT)
    examples = [trajectory for g in iterator.next(0) for trajectory in g.trajectories]
    answers = [t.turns[0].action.text for t in group.trajectories]
    assert {RIGHT, "9"} == set(answers) and len(examples) == 6
    opening = group.trajectories[0].opening[0].text.strip()
    for answer, example in zip(answers, examples):
        (call,) = example.calls
        word = "yes" if answer == RIGHT else "no"
        prompt, action = (
            RENDERER.codec.decode(tuple(x.tolist())) for x in (call.prompt, call.action)
        )
        assert (prompt, action) == (f"{opening}{answer}, right?\n", f"{word}\n")
        assert call.source == "demonstration"
    assert iterator.metrics() == {"verifier/positive": answers.count(RIGHT) / 6}
    assert episode_stats(iterator.next(1)) == []  # they do not count as rollouts
    iterator.load(iterator.state())
    assert rollouts.loaded == {"step": 3}


def test_an_episode_without_an_outcome_is_refused():
    group = collect_group(IndependentEpisodes(1), KeyedTextEngine((RIGHT,)), SUM)
    unknown = tuple(t.replace(success=None) for t in group.trajectories)
    iterator = VerifierExampleIterator(
        VERIFIER, FixedGroups([dataclasses.replace(group, trajectories=unknown)]), AGENT
    )
    with pytest.raises(UserError, match="does not say whether it was solved"):
        iterator.next(0)

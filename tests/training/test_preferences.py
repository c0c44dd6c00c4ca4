"""Pairs from files become groups that DPO and reward models take, and are resumed at the exact
pair.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.algorithms.pairwise.pairs import preference_pairs_of
from agentrl_jax.algorithms.pairwise.reward_model import ranked_pairs
from agentrl_jax.context import FullHistory
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.training.preferences import PreferenceIterator
from agentrl_jax.trajectories import Group, Sampling

AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling())
PAIRS = 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"prompt": f"{i}?\n", "chosen": f"{i}!", "rejected": "no", "task": f"t{i}"})
        for i in range(PAIRS)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    return tmp_path / "pairs.jsonl"


def take(iterator: PreferenceIterator, batches: int) -> list[Group]:
    return [group for step in range(batches) for group in iterator.next(step)]


def test_a_group_is_a_pair_with_its_calls(path: Path):
    groups = take(PreferenceIterator(path, AGENT, PAIRS, 0), 1)
    assert sorted(group.task for group in groups) == [f"t{i}" for i in range(PAIRS)]
    for group in groups:
        name = group.task.removeprefix("t")
        first, second = group.trajectories
        assert first.opening == second.opening == (user(f"{name}?\n"),)
        assert (first.total_reward, second.total_reward) == (1.0, 0.0)
        assert ranked_pairs(group) == [(first, second)]
        texts = [bytes(call.ids.tolist()).decode() for t in group.trajectories for call in t.calls]
        assert texts == [f"{name}?\n{name}!\n", f"{name}?\nno\n"]
    pairs, dropped = preference_pairs_of(groups)
    assert len(pairs) == PAIRS and dropped == {"broken": 0, "identical": 0}
    assert all(pair.is_finished == (True, True) for pair in pairs)


def test_every_epoch_has_every_pair_once_and_is_resumed(path: Path):
    iterator = PreferenceIterator(path, AGENT, 2, 3)
    tasks = [group.task for group in take(iterator, PAIRS)]  # two epochs
    assert sorted(tasks[:PAIRS]) == sorted(tasks[PAIRS:]) == [f"t{i}" for i in range(PAIRS)]
    state = json.loads(json.dumps(iterator.state()))
    expected = [group.task for group in take(iterator, 4)]
    resumed = PreferenceIterator(path, AGENT, 2, 3)
    resumed.load(state)
    assert [group.task for group in take(resumed, 4)] == expected


def test_two_processes_read_disjoint_parts_of_a_batch(path: Path):
    class Half(ProcessGroup):
        def __init__(self, index: int) -> None:
            self.index, self.count = index, 2

    halves = [PreferenceIterator(path, AGENT, 4, 3, Half(i)) for i in range(2)]
    tasks = [[group.task for group in take(half, 3)] for half in halves]
    both = take(PreferenceIterator(path, AGENT, 4, 3), 3)
    assert np.stack(tasks, axis=1).reshape(-1).tolist() == [group.task for group in both]
    assert json.dumps(halves[0].state()) == json.dumps(halves[1].state())


def test_what_does_not_fit_is_reported_in_one_sentence(path: Path):
    with pytest.raises(UserError, match=r"holds 7 pairs, fewer than one batch of 8"):
        PreferenceIterator(path, AGENT, 8, 0)
    short = dataclasses.replace(AGENT, sampling=Sampling(budget=2))
    with pytest.raises(UserError, match="takes 3 tokens, an agent's budget is 2"):
        take(PreferenceIterator(path, short, 4, 0), 1)

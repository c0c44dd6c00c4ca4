"""Rollouts of a real game: what is trained is what was sampled, a rerun is identical, and the log alone says it all again."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import minute_policy

import agentrl_jax.envs  # noqa: F401
from agentrl_jax import journal
from agentrl_jax.context import FullHistory
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.replay import replay
from agentrl_jax.rows import collate, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.workers import InProcess, Task

TOKENIZER = byte_tokenizer()
POLICY = minute_policy(len(TOKENIZER))
PARAMS = POLICY.init(jax.random.key(0))
SAMPLING = Sampling(budget=7, temperature=1.2, top_k=40, min_p=0.001)


def engine(**fields: Any) -> LocalEngine:
    sizes: dict[str, Any] = {"rows": 6, "parked": 6, "positions": 512, "chunk": 16, "burst": 4}
    return LocalEngine(POLICY, EngineConfig(**{**sizes, **fields}), PARAMS)


def played(engine: LocalEngine) -> list[Group]:
    agent = Agent("policy", TextRenderer(TOKENIZER), FullHistory(), SAMPLING)
    tasks = [Task("agentrl/Wordle-v0", seed, {"words": 32}, group=seed) for seed in range(4)]
    with Runtime({"policy": engine}, {"policy": agent}, InProcess()) as runtime:
        return runtime.collect(Independent(4), tasks, (1, 2))


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return played(engine())


def all_of(groups: list[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


def test_what_is_trained_is_what_was_sampled(groups: list[Group]):
    whole = collate(groups)
    sampled = np.concatenate([call.action for trajectory in all_of(groups) for call in trajectory.calls])
    trained = np.concatenate([row.tokens[row.action_mask] for row in whole.rows])
    assert trained.tolist() == sampled.tolist() and token_identity(groups, whole) == 1.0
    assert sum(int(row.action_mask.sum()) for row in whole.rows) == len(sampled) == len(whole.indices.token_row)
    assert len(whole.rows) == 16 and len(sampled) > 16 * 10


def test_members_of_a_group_differ(groups: list[Group]):
    for group in groups:
        assert len({tuple(t.calls[0].action.tolist()) for t in group.trajectories}) == 4


@pytest.mark.slow
def test_a_log_alone_says_it_all_again(groups: list[Group], tmp_path: Path):
    journal.write(tmp_path / "log.jsonl", all_of(groups), 0, "rl")
    logged = [trajectory for _, trajectory in journal.read(tmp_path / "log.jsonl")]
    same = engine()
    again = replay(logged, same)
    same.close()
    assert again.calls == sum(len(t.calls) for t in all_of(groups)) and again.tokens > 160
    # Here every turn is prefilled as a whole, where the rollout went on from its cache: log-probs differ in their last bits.
    assert again.same == again.tokens and again.differing == () and again.logp_gap < 1e-5
    other = engine(rows=3, parked=0, chunk=5, burst=2, spans=2)
    elsewhere = replay(logged, other)
    assert elsewhere.same >= 0.99 * elsewhere.tokens and elsewhere.logp_gap < 1e-5  # near-ties are counted, not hidden
    other.publish(POLICY.init(jax.random.key(1)), 1)
    assert replay(logged, other).same < 0.5 * again.tokens
    other.close()


def test_a_rerun_is_identical(groups: list[Group]):
    for one, two in zip(all_of(groups), all_of(played(engine()))):
        assert one.total_reward == two.total_reward and [c.action.tolist() for c in one.calls] == [c.action.tolist() for c in two.calls]
        assert [c.sampler_logp.tolist() for c in one.calls] == [c.sampler_logp.tolist() for c in two.calls]

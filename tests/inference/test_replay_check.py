"""Rollouts of Wordle: trained tokens are those sampled, reruns are identical, logs replay."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import tiny_policy

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.context import FullHistory
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.replay_check import check_replay, draw_margin
from agentrl_jax.inference.sampling import SamplerState, sample
from agentrl_jax.keys import key_data
from agentrl_jax.learner.sequences import collate, token_identity
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import trajectory_log
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory
from agentrl_jax.workers.pool import InlinePool, Task

TOKENIZER = byte_tokenizer()
POLICY = tiny_policy(len(TOKENIZER))
PARAMS = POLICY.init(jax.random.key(0))
SAMPLING = Sampling(budget=7, temperature=1.2, top_k=40, min_p=0.001)
KEY: RandomKey = (1, 2, 3, 4, 5, 6)


def engine(**fields: Any) -> LocalEngine:
    sizes: dict[str, Any] = {
        "rows": 6,
        "parked_slots": 6,
        "positions": 512,
        "prefill_chunk": 16,
        "min_decode_steps": 4,
    }
    return LocalEngine(POLICY, EngineConfig(**{**sizes, **fields}), PARAMS)


def collect_groups(engine: LocalEngine) -> list[Group]:
    agent = Agent("policy", TextRenderer(TOKENIZER), FullHistory(), SAMPLING)
    tasks = [Task("agentrl/Wordle-v0", seed, {"words": 32}, group=seed) for seed in range(4)]
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool()) as runtime:
        return runtime.collect(IndependentEpisodes(4), tasks, (1, 2))


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return collect_groups(engine())


def all_trajectories(groups: list[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


def test_what_is_trained_is_what_was_sampled(groups: list[Group]):
    collated = collate(groups)
    sampled = np.concatenate(
        [call.action for trajectory in all_trajectories(groups) for call in trajectory.calls]
    )
    trained = np.concatenate([row.tokens[row.action_mask] for row in collated.sequences])
    assert trained.tolist() == sampled.tolist() and token_identity(groups, collated) == 1.0
    assert (
        sum(int(row.action_mask.sum()) for row in collated.sequences)
        == len(sampled)
        == len(collated.token_index.token_sequence)
    )
    assert len(collated.sequences) == 16 and len(sampled) > 16 * 10


def test_members_of_a_group_differ(groups: list[Group]):
    for group in groups:
        assert len({tuple(t.calls[0].action.tolist()) for t in group.trajectories}) == 4


@pytest.mark.slow
def test_a_trajectory_log_is_reproduced(groups: list[Group], tmp_path: Path):
    trajectory_log.write(tmp_path / "log.jsonl", all_trajectories(groups), 0, "rl")
    logged = [record.trajectory for record in trajectory_log.read(tmp_path / "log.jsonl")]
    same_engine = engine()
    report = check_replay(logged, same_engine)
    same_engine.close()
    assert (
        report.calls == sum(len(t.calls) for t in all_trajectories(groups)) and report.tokens > 160
    )
    # Here every turn is prefilled from the start, the rollout reused its cache: log-probs differ in
    # their last bits.
    assert (
        report.matching_tokens == report.tokens
        and report.mismatches == ()
        and report.max_logp_gap < 1e-5
    )
    other_engine = engine(rows=3, parked_slots=0, prefill_chunk=5, min_decode_steps=2, spans=2)
    other_report = check_replay(logged, other_engine)
    assert (
        other_report.matching_tokens >= 0.99 * other_report.tokens
        and other_report.max_logp_gap < 1e-5
    )  # near-ties are counted, not hidden
    other_engine.publish(POLICY.init(jax.random.key(1)), 1)
    assert check_replay(logged, other_engine).matching_tokens < 0.5 * report.tokens
    other_engine.close()


def sample_tokens(logits: np.ndarray, counter: int) -> list[int]:
    """The token that each row samples at a position, as an engine does it, all with one key."""
    state = SamplerState(len(logits))
    for row in range(len(logits)):
        settings = (counter, 0, key_data(KEY), (), (1.0, 1.0, 0.0))
        state.set_row(row, np.asarray([0]), 0, 1, *settings)
    params = SamplerState.unpack(jnp.asarray(state.ints), jnp.asarray(state.floats))
    return jax.jit(sample)(jnp.asarray(logits), params).token.tolist()


def test_a_token_that_gains_the_margin_of_a_draw_wins_it():
    counter, tokens = 3, np.arange(16)
    logits = np.random.default_rng(0).normal(size=16).astype(np.float32)
    logp = np.asarray(jax.nn.log_softmax(logits))
    (winner,) = sample_tokens(logits[None], counter)

    def call(token: int) -> Call:
        action = np.asarray([0, 0, 0, token], np.int32)
        version = np.zeros(4, np.int32)
        return Call(action, action, logp[action], version, Sampling(), "budget", key=KEY)

    margins = [draw_margin(call(token), call(winner), counter) for token in range(16)]
    assert margins[winner] == 0 and all(np.delete(margins, winner) > 0)
    gain = np.diag(np.asarray(margins, np.float32))
    assert sample_tokens(logits + np.float32(0.999) * gain, counter) == [winner] * 16
    assert sample_tokens(logits + np.float32(1.001) * gain, counter) == tokens.tolist()


@pytest.mark.slow
def test_a_rerun_is_identical(groups: list[Group]):
    for a, b in zip(all_trajectories(groups), all_trajectories(collect_groups(engine()))):
        assert a.total_reward == b.total_reward and [c.action.tolist() for c in a.calls] == [
            c.action.tolist() for c in b.calls
        ]
        assert [c.sampler_logp.tolist() for c in a.calls] == [
            c.sampler_logp.tolist() for c in b.calls
        ]

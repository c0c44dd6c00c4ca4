"""Calls outside of episodes, sampled all at once: the same as requests one by one."""

from typing import Any

import numpy as np
import pytest
from support.conversations import OTHER_PARAMS, POSITIONS, VOCAB_SIZE, start_engine
from support.fixtures import record_compilations

from agentrl_jax.context import FullHistory
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Sampling
from agentrl_jax.workers.pool import InlinePool

SAMPLINGS = {
    "stops": Sampling(budget=6, stop_ids=(3, 4, 5)),
    "filters": Sampling(budget=40, temperature=0.7, top_k=5),
    "greedy": Sampling(budget=2, temperature=0.0),
}


def prompts() -> list[np.ndarray]:
    """Some that extend each other, some in another order, one twice, and one that is too long."""
    rng = np.random.default_rng(0)
    text, other = (rng.integers(1, VOCAB_SIZE, 24).astype(np.int32) for _ in range(2))
    lengths = [(text, 2), (text, 5), (text, 11), (other, 7), (other, 3), (other, 3), (text, 1)]
    tokens = [x[:n] for x, n in lengths]
    return [*tokens, rng.integers(1, VOCAB_SIZE, POSITIONS).astype(np.int32), other[:20]]


def open_runtime(**settings: Any) -> Runtime:
    agents = {
        name: Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), sampling)
        for name, sampling in SAMPLINGS.items()
    }
    return Runtime({"policy": start_engine(spans=1, **settings)}, agents, InlinePool())


def sample(runtime: Runtime, agent: str) -> list[Call]:
    """Three calls for each of the prompts."""
    groups = runtime.run(runtime.sample(agent, prompts(), 3, (5, 6)))
    return [call for group in groups for call in group]


def contents(call: Call) -> Any:
    arrays = [x.tolist() for x in (call.prompt, call.action, call.version)]
    return arrays, call.finish_reason, call.key, call.sampling, call.source


@pytest.mark.parametrize(
    ("rows", "mesh"),
    [(5, {"data": 1}), pytest.param(8, {"data": 2, "tensor": 2}, marks=pytest.mark.slow)],
)
def test_a_batch_has_the_calls_of_requests(rows: int, mesh: dict[str, int]):
    with (
        open_runtime() as one_by_one,
        open_runtime(batch_rows=rows, mesh=MeshConfig(**mesh)) as batches,
    ):
        reasons = set()
        for agent in SAMPLINGS:
            want = sample(one_by_one, agent)
            with record_compilations() as compiled:
                got = sample(batches, agent)
            assert compiled == [] and list(map(contents, got)) == list(map(contents, want))
            for a, b in zip(got, want, strict=True):
                assert a.sampler_logp == pytest.approx(b.sampler_logp, abs=1e-5)
                assert a.entropy == pytest.approx(b.entropy, abs=1e-4)
            reasons |= {call.finish_reason for call in got}
        assert reasons == {"stop", "budget", "context"}
        engine = batches.engines["policy"]
        assert engine.counts["sampled_tokens"] == 0  # type: ignore[attr-defined] # no request


@pytest.mark.slow
def test_a_batch_is_sampled_with_the_newest_weights_and_the_rest_as_requests():
    with open_runtime() as one_by_one, open_runtime(batch_rows=16) as runtime:
        for each in (one_by_one, runtime):
            each.publish(OTHER_PARAMS, 7)
        got, want = (sample(each, "stops") for each in (runtime, one_by_one))
        assert list(map(contents, got)) == list(map(contents, want))
        assert {int(v) for call in got for v in call.version} == {7}
        engine = runtime.engines["policy"]
        for sampling in (Sampling(forced=(1,)), Sampling(stop_strings=("a",))):
            assert not engine.samples_batches(sampling)  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="at least one token"):
            engine.sample_batch([np.zeros(0, np.int32)], 1, Sampling(), ())  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="nothing below 0"):
        start_engine(batch_rows=-1)

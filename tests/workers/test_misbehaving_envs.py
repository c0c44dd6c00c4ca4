"""Whatever an environment raises is a failure of it alone, counted as such."""

import pytest
from support import misbehaving_envs
from support.fixtures import ScriptedEngine
from support.misbehaving_envs import FAULTS

from agentrl_jax.context import FullHistory
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())
INLINE = [name for name, fault in FAULTS.items() if fault.inline]


@pytest.mark.parametrize("name", INLINE)
def test_a_fault_is_counted_with_its_kind_and_has_no_reward(name: str):
    fault = FAULTS[name]
    tasks = [Task(misbehaving_envs.ENVIRONMENT_ID, 0, {"fault": x}) for x in (name, "")]
    agents = {"policy": Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))}
    engines = {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, InlinePool(), retries=0) as runtime:
        attacked, other = runtime.collect(IndependentEpisodes(1), tasks, (0, 0))
    assert [t.total_reward for t in other.trajectories] == [3.0]
    if fault.kinds:
        assert not attacked.trajectories and attacked.num_dropped == 1
        assert dict.fromkeys(fault.kinds, 1) == dict(runtime.failures.counts)
    else:
        assert [t.total_reward for t in attacked.trajectories] == [3.0]
        assert [t.turns[1].observation[0].text for t in attacked.trajectories] == ["turn 2\n"]

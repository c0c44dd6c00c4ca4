"""Settings of an agent that an evaluation replaces."""

from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.algorithms.contexts.policy_notes import Summarize
from agentrl_jax.configs import chain_supo
from agentrl_jax.errors import UserError
from agentrl_jax.launch import players
from agentrl_jax.launch.agent_options import with_agent_options


def test_fields_are_replaced_by_their_dotted_names():
    experiment = chain_supo.get_config()
    options = {"context.max_summaries": 14, "limits.turns": 20, "temperature": 0, "top_k": 3}
    agent = with_agent_options(experiment, "policy", options).agent
    assert isinstance(agent.context, Summarize) and isinstance(experiment.agent.context, Summarize)
    assert (agent.context.max_summaries, experiment.agent.context.max_summaries) == (14, 7)
    assert agent.context.window == experiment.agent.context.window
    assert (agent.limits.turns, agent.limits.context) == (20, experiment.agent.limits.context)
    assert (agent.temperature, agent.top_k) == (0.0, 3) and type(agent.temperature) is float
    assert with_agent_options(experiment, "policy", {}).agent == experiment.agent


@pytest.mark.parametrize(
    "options,match",
    [
        ({"context.summaries": 3}, "has no field 'summaries', only .*max_summaries"),
        ({"window": 3}, "has no field 'window'"),
        ({"context.max_summaries": "many"}, "'many' cannot replace 7"),
        ({"context.max_summaries": True}, "True cannot replace 7"),
        ({"context.max_summaries": 2.5}, "2.5 cannot replace 7"),
        ({"context": 3}, "cannot replace Summarize"),
        ({"budget.tokens": 3}, "has no fields"),
        ({"context.max_summaries": -1}, "max_summaries"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], match: str):
    with pytest.raises(UserError, match=match) as error:
        with_agent_options(chain_supo.get_config(), "policy", options)
    assert "\n" not in str(error.value)


def test_options_need_a_run():
    with pytest.raises(UserError, match="--run_dir"):
        players.named_checkpoint("", None, None, None, ["limits.turns=3"])
    checkpoint = players.named_checkpoint("runs/x", None, None, None, ["limits.turns=3"])
    assert checkpoint is not None and checkpoint.run_dir == Path("runs/x")
    assert checkpoint.agent_options == {"limits.turns": 3}

"""Actions that a person types."""

import json

from agentrl_jax.environment import make
from agentrl_jax.launch.players import typed_action
from agentrl_jax.messages import assistant


def test_a_typed_list_of_calls_calls_tools_where_there_are_some():
    env = make("agentrl/PriceList-v0")
    _, info = env.reset(seed=0)
    action = typed_action("[calculate('2*3+4')]", info["tools"])
    (call,) = action.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("calculate", {"expression": "2*3+4"})
    (answer,), *_ = env.step(action)
    assert answer.text == "10"
    assert typed_action("25", info["tools"]) == assistant("25")
    assert typed_action("[calculate('2*3+4')]", ()) == assistant("[calculate('2*3+4')]")

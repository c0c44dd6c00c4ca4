"""`ToolEnvironment`: an environment whose actions may call tools."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from agentrl_jax.environment import Environment, Messages
from agentrl_jax.messages import Message, ToolCall, tool_result
from agentrl_jax.tools import Tool, ToolOutput, tool


def tool_action(name: str, /, **arguments: Any) -> Message:
    """The action of a scripted policy that calls one tool."""
    return Message("assistant", "", (ToolCall("call_0", name, json.dumps(arguments)),))


class ToolEnvironment(Environment):
    """An environment with tools, which are typed Python functions with docstrings.

    Subclasses define `_tools`, `_reset` and `_step`. An action with tool calls is answered by one
    message per call, in order; one without is the final answer, and its text goes to `_step`. A
    malformed call, an unknown tool and wrong arguments are answered by a message that says what is
    wrong. `info` of an action with calls holds `tool_calls`, how many there are, `tool_errors`, how
    many of them failed, and `formatted`, whether none was malformed; that of any action holds
    `void`, whether it has neither an answer nor a call that is well-formed.
    """

    horizon: int = 0  # turns after which an episode is truncated, without success; 0: endless
    max_calls: int = 8  # of one action; others are not run

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        """The tools of the episode, with limits of their own or as plain functions."""
        raise NotImplementedError(f"{type(self).__name__} must define _tools")

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(t if isinstance(t, Tool) else tool(t) for t in self._tools())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Messages, dict[str, Any]]:
        opening, info = super().reset(seed=seed, options=options)
        return opening, {**info, "tools": [t.schema for t in self.tools]}

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        if message.tool_calls:
            observation, info = self._run_calls(message)
            reward, terminated, truncated = 0.0, False, False
        else:
            observation, reward, terminated, truncated, info = self._step(message.text)
            info = {"void": not message.text.strip(), **info}
        if 0 < self.horizon <= len(self._step_history) + 1 and not (terminated or truncated):
            truncated, info["success"] = True, False
        return observation, reward, terminated, truncated, info

    def _run_calls(self, message: Message) -> tuple[Messages, dict[str, Any]]:
        tools = {t.name: t for t in self.tools}
        outputs = [self._run(call, i, tools) for i, call in enumerate(message.tool_calls)]
        info: dict[str, Any] = {
            "tool_calls": len(outputs),
            "tool_errors": sum(output.is_error for output in outputs),
            "formatted": not any(call.error for call in message.tool_calls),
            "void": all(call.error for call in message.tool_calls),
        }
        answers = zip(message.tool_calls, outputs)
        return tuple(tool_result(call, o.text, o.images) for call, o in answers), info

    def _run(self, call: ToolCall, index: int, tools: dict[str, Tool]) -> ToolOutput:
        if call.error:
            return ToolOutput(f"Error: this tool call cannot be read: {call.error}", True)
        if index >= self.max_calls:
            return ToolOutput(f"Error: at most {self.max_calls} calls are run at a time", True)
        if call.name not in tools:
            known = ", ".join(tools)
            return ToolOutput(f"Error: there is no tool {call.name!r:.80}; there are {known}", True)
        return tools[call.name].run(call)

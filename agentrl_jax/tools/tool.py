"""`Tool`: a function that a policy may call, with a JSON schema of its arguments."""

import ctypes
import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart, ToolCall, ToolSchema
from agentrl_jax.tools.function_schema import describe_function
from agentrl_jax.tools.json_schema import violation


@dataclass(frozen=True)
class ToolOutput:
    """What a call returns to the policy."""

    text: str
    is_error: bool = False  # the call was malformed, or its function failed or was late
    images: tuple[ImagePart, ...] = ()


@dataclass(frozen=True)
class Tool:
    """A tool: what the policy reads about it, its function and its limits."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # a JSON schema of an object
    function: Callable[..., Any]
    seconds: float = 5.0  # of a call
    max_characters: int = 4000  # of a result; more are cut, with a mark

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf or self.max_characters < 1:
            raise UserError(
                f"the tool {self.name!r} needs a positive number of seconds and characters, "
                f"not {self.seconds} and {self.max_characters}"
            )

    @property
    def schema(self) -> ToolSchema:
        """The tool in OpenAI's JSON format."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}

    def run(self, call: ToolCall) -> ToolOutput:
        """Check the arguments of a call and run the function on them.

        The function may return a `ToolOutput`, of which only the length of the text is checked.
        Whatever the arguments, and whatever the function raises, there is an output; but failures
        of the environment or of the user's settings are raised, for they are not the policy's.

        Raises:
            EnvironmentFailure, UserError, MemoryError: as the function.
        """
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return ToolOutput(f"Error: the arguments are not valid JSON: {error!s:.200}", True)
        reason = violation(arguments, {"type": "object", **self.parameters}, "the call")
        if reason is not None:
            return ToolOutput(f"Error: {reason}", True)
        try:
            result = call_with_time_limit(lambda: self.function(**arguments), self.seconds)
        except TimeoutError:
            return ToolOutput(f"Error: {self.name} took longer than {self.seconds:g} s", True)
        except (EnvironmentFailure, UserError, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            return ToolOutput(self._cut(f"Error: {type(error).__name__}: {error}"), True)
        if isinstance(result, ToolOutput):
            return replace(result, text=self._cut(result.text))
        return ToolOutput(self._cut(_result_text(result)))

    def _cut(self, text: str) -> str:
        text = text.encode(errors="replace").decode()  # lone surrogates cannot be sent
        if len(text) <= self.max_characters:
            return text
        mark = f"[cut after {self.max_characters:,} of {len(text):,} characters]"
        return f"{text[: self.max_characters]}\n{mark}"


def tool(
    function: Callable[..., Any],
    seconds: float = Tool.seconds,
    max_characters: int = Tool.max_characters,
) -> Tool:
    """The tool of a typed Python function, or bound method.

    Its docstring, in Google's style, describes the tool and, under "Args:", its arguments; its
    annotations give their types.

    Args:
        function: takes its arguments by name.
        seconds: of a call.
        max_characters: of a result.

    Raises:
        UserError: the docstring is missing, or an argument lacks a type that JSON has.
    """
    return Tool(*describe_function(function), function, seconds, max_characters)


def _result_text(result: Any) -> str:
    """A result as the policy reads it: a text as it is, other values as JSON where they can be."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)


def call_with_time_limit(function: Callable[[], Any], seconds: float) -> Any:
    """The result of a function in a thread of its own.

    A late one is interrupted at its next Python instruction: a call into C code runs on until it
    returns. Raises TimeoutError, or what the function raises.
    """
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Late)
        )
        raise TimeoutError
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


class _Late(BaseException):
    """Raised in the thread of a function that has exceeded its time."""

"""The tools that `agentrl-tools` offers: calculator, Python in the sandbox, functions by name."""

import importlib
from collections.abc import Callable, Sequence

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.python_tool import PythonTool, shared_sandbox
from agentrl_jax.sandbox.snippet import Snippet, describe_end
from agentrl_jax.tool_servers.arithmetic import calculate
from agentrl_jax.tools import Tool, tool

_GRACE_SECONDS = 10.0  # that the sandbox needs at most to end a call that is late


def stateless_python_tool(config: SandboxConfig, max_characters: int) -> Tool:
    """The tool `python` whose calls are programs of their own, for clients that share a server."""
    sandbox = shared_sandbox(config)

    def python(code: str) -> str:
        """Run a Python program; the output is what it prints.

        Args:
            code: the program
        """
        outcome = sandbox.run(Snippet(code))
        note = describe_end(outcome, config.limits) if outcome.exit_code != 1 else ""
        return f"{outcome.stdout}{outcome.stderr}{note}" or "(no output)"

    return tool(python, config.limits.seconds + _GRACE_SECONDS, max_characters)


def session_python_tool(config: SandboxConfig, max_characters: int) -> Tool:
    """The tool `python` whose variables stay, for one client."""
    python = PythonTool(config, max_characters)
    python.restart()
    return python.tool


def named_tool(name: str, seconds: float, max_characters: int) -> Tool:
    """The tool of a `module:function`, or a `Tool` of that name.

    Raises:
        UserError: there is none, or the function cannot be a tool.
    """
    module, _, attribute = name.partition(":")
    try:
        target = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"there is no tool {name!r} ({error}): name calculator, python, or a module:function "
            "whose module is on PYTHONPATH"
        ) from error
    if isinstance(target, Tool):
        return target
    if not isinstance(target, Callable):
        raise UserError(f"{name} is neither a function nor a Tool")
    return tool(target, seconds, max_characters)


def make_tools(
    names: Sequence[str],
    sandbox: SandboxConfig,
    keep_variables: bool,
    seconds: float = Tool.seconds,
    max_characters: int = Tool.max_characters,
) -> tuple[Tool, ...]:
    """The tools of these names: `calculator`, `python` or `module:function`.

    Args:
        names: of the tools.
        sandbox: where `python` runs.
        keep_variables: whether the calls of `python` are those of one session.
        seconds: of a call of the others.
        max_characters: of a result.

    Raises:
        UserError: a name is unknown, two tools have the same name, or there is no sandbox.
    """
    make_python = session_python_tool if keep_variables else stateless_python_tool
    tools = []
    for name in names:
        if name == "calculator":
            tools.append(tool(calculate, seconds, max_characters))
        elif name == "python":
            tools.append(make_python(sandbox, max_characters))
        else:
            tools.append(named_tool(name, seconds, max_characters))
    counts = [t.name for t in tools]
    if not tools or len(set(counts)) < len(counts):
        raise UserError(
            f"a server needs tools of different names, not {', '.join(counts) or 'none'}"
        )
    return tuple(tools)

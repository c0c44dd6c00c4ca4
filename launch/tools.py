"""Offer tools, or an environment, to programs that speak one of four protocols, until Ctrl-C.

agentrl-tools --tool=python --tool=calculator [--port=8000]         the Model Context Protocol
agentrl-tools --tool=mymodule:search --stdio                        the same, to who starts it
agentrl-tools --protocol=verltool --tool=python --format=fenced     VerlTool's tool server
agentrl-tools --protocol=agentgym --environment=agentrl/Wordle-v0   AgentGym's HTTP verbs
agentrl-tools --protocol=openenv --environment=agentrl/Wordle-v0    OpenEnv's websocket messages

It prints the address and the key that clients must send: a new one each time, unless an environment
variable holds it. Variables of `python` stay within a trajectory of VerlTool and with --stdio; else
each call is a program of its own.
"""

import asyncio
import sys
from contextlib import AbstractAsyncContextManager

from absl import flags

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.launch import cli, dataclass_flags
from agentrl_jax.launch.stop_signals import stop_event
from agentrl_jax.sandbox.limits import SandboxLimits

_LIMITS = SandboxLimits()
_PROTOCOLS = ["mcp", "verltool", "agentgym", "openenv"]
flags.DEFINE_enum("protocol", "mcp", _PROTOCOLS, "What clients speak.")
flags.DEFINE_multi_string("tool", [], "python, calculator or module:function; may be repeated.")
flags.DEFINE_bool("stdio", False, "MCP on stdin and stdout instead of a port.")
flags.DEFINE_enum(
    "format",
    "hermes",
    ["hermes", "llama", "python_list", "function_tag", "fenced"],
    "How actions of VerlTool write calls; fenced: a block of Python for the tool python.",
)
flags.DEFINE_string("environment", "", "A Gymnasium id, for AgentGym and OpenEnv.")
flags.DEFINE_multi_string("option", [], "name=value for its constructor; may be repeated.")
flags.DEFINE_string("minimum", "landlock", "The weakest sandbox of python.")
flags.DEFINE_multi_string("modules", [], "An installed package to import there.")
flags.DEFINE_float("seconds", _LIMITS.seconds, "Of a call, at most.", lower_bound=0.01)
flags.DEFINE_integer("memory_mb", _LIMITS.memory_mb, "Of python, at most.", lower_bound=1)
flags.DEFINE_integer("characters", 4000, "Of a result, at most.", lower_bound=1)
flags.DEFINE_integer("calls", 8, "Calls that run at once; others wait.", lower_bound=1)
flags.DEFINE_integer("clients", 256, "Trajectories or environments at once.", lower_bound=1)
flags.DEFINE_string("host", "127.0.0.1", "Where to listen: another address admits others.")
flags.DEFINE_integer("port", 8000, "Where to listen; 0: any.", lower_bound=0, upper_bound=65535)
flags.DEFINE_string(
    "api_key_variable",
    "",
    "The environment variable that holds the key; empty: a new one, which is printed.",
)
dataclass_flags.define_flags(ServerLimits)


async def _serve(server: AbstractAsyncContextManager[str], description: str) -> None:
    stop_requested = stop_event()
    async with server as url:
        print(description.format(url=url), flush=True)
        await stop_requested.wait()


def serve() -> None:
    from agentrl_jax.launch import tool_serving
    from agentrl_jax.launch.api_keys import resolve_api_key

    f = flags.FLAGS
    sys.path.insert(0, "")  # modules of the working directory, as with python -m
    if f.stdio:
        tool_serving.serve_stdio(f)
        return
    key = resolve_api_key(f.api_key_variable)
    server, name = tool_serving.make_server(f, key, dataclass_flags.from_flags(ServerLimits))
    key_note = f" with the key {key}" if not f.api_key_variable else ""
    asyncio.run(_serve(server, f"serving {name} at {{url}}{key_note}"))


def main() -> None:
    sys.exit(cli.run(serve))


if __name__ == "__main__":
    main()

"""Offer tools to programs that speak the Model Context Protocol, until Ctrl-C.

agentrl-tools --tool=python --tool=calculator [--port=8000]
agentrl-tools --tool=mymodule:search --stdio

It prints the address and the key that clients must send: a new one each time, unless an environment
variable holds it. With --stdio it serves the program that starts it, and `python` keeps its
variables; else each call of `python` is a program of its own.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.launch import cli, dataclass_flags
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits

_LIMITS = SandboxLimits()
flags.DEFINE_multi_string("tool", [], "python, calculator or module:function; may be repeated.")
flags.DEFINE_bool("stdio", False, "Serve on stdin and stdout instead of a port.")
flags.DEFINE_string("minimum", "landlock", "The weakest sandbox of python.")
flags.DEFINE_multi_string("modules", [], "An installed package to import there.")
flags.DEFINE_float("seconds", _LIMITS.seconds, "Of a call, at most.", lower_bound=0.01)
flags.DEFINE_integer("memory_mb", _LIMITS.memory_mb, "Of python, at most.", lower_bound=1)
flags.DEFINE_integer("characters", 4000, "Of a result, at most.", lower_bound=1)
flags.DEFINE_integer("calls", 8, "Calls that run at once; others wait.", lower_bound=1)
flags.DEFINE_string("host", "127.0.0.1", "Where to listen: another address admits others.")
flags.DEFINE_integer("port", 8000, "Where to listen; 0: any.", lower_bound=0, upper_bound=65535)
flags.DEFINE_string(
    "api_key_variable",
    "",
    "The environment variable that holds the key; empty: a new one, which is printed.",
)
dataclass_flags.define_flags(ServerLimits)


async def _serve(tools: Sequence[Any], key: str, limits: ServerLimits) -> None:
    from agentrl_jax.tool_servers.mcp_serving import serve_http

    f = flags.FLAGS
    stop_requested, loop = asyncio.Event(), asyncio.get_running_loop()
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(stop_signal, stop_requested.set)
    async with serve_http(tools, f.host, f.port, key, limits, f.calls) as url:
        key_note = f" with the key {key}" if not f.api_key_variable else ""
        print(f"serving {', '.join(t.name for t in tools)} at {url}{key_note}", flush=True)
        await stop_requested.wait()


def serve() -> None:
    from agentrl_jax.launch.api_keys import resolve_api_key
    from agentrl_jax.tool_servers.mcp_serving import serve_stdio
    from agentrl_jax.tool_servers.served_tools import make_tools

    f = flags.FLAGS
    limits = SandboxLimits(seconds=f.seconds, memory_mb=f.memory_mb)
    sandbox = SandboxConfig(f.minimum, limits, tuple(f.modules))
    sys.path.insert(0, "")  # modules of the working directory, as with python -m
    tools = make_tools(f.tool, sandbox, f.stdio, f.seconds, f.characters)
    if f.stdio:
        asyncio.run(serve_stdio(tools, f.calls))
        return
    key = resolve_api_key(f.api_key_variable)
    asyncio.run(_serve(tools, key, dataclass_flags.from_flags(ServerLimits).check()))


def main() -> None:
    sys.exit(cli.run(serve))


if __name__ == "__main__":
    main()

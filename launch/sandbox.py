"""Serve a sandbox of this machine in SandboxFusion's form, on loopback, until Ctrl-C.

agentrl-sandbox [--minimum=landlock] [--port=8080] [--modules=numpy]
curl URL/run_code -H 'Authorization: Bearer KEY' -d '{"code": "print(1)", "language": "python"}'

It prints the address and the key that clients must send: a new one each time, unless an environment
variable holds it.
"""

import asyncio
import sys

from absl import flags

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.launch import cli, dataclass_flags
from agentrl_jax.launch.stop_signals import stop_event
from agentrl_jax.sandbox.ladder import SandboxConfig, open_sandbox
from agentrl_jax.sandbox.limits import SandboxLimits

_LIMITS = SandboxLimits()
flags.DEFINE_string("minimum", "landlock", "The weakest sandbox: landlock, bubblewrap or gvisor.")
flags.DEFINE_multi_string("modules", [], "An installed package to import; may be repeated.")
flags.DEFINE_float("seconds", _LIMITS.seconds, "Of a snippet, at most.", lower_bound=0.01)
flags.DEFINE_integer("memory_mb", _LIMITS.memory_mb, "Of a snippet, at most.", lower_bound=1)
flags.DEFINE_string("host", "127.0.0.1", "Where to listen: another address admits others.")
flags.DEFINE_integer("port", 8080, "Where to listen; 0: any.", lower_bound=0, upper_bound=65535)
flags.DEFINE_string(
    "api_key_variable",
    "",
    "The environment variable that holds the key; empty: a new one, which is printed.",
)
dataclass_flags.define_flags(ServerLimits)


async def _serve(config: SandboxConfig, key: str, limits: ServerLimits) -> None:
    from agentrl_jax.launch.sandbox_serving import serve_sandbox

    f = flags.FLAGS
    stop_requested = stop_event()
    with open_sandbox(config) as sandbox:
        async with serve_sandbox(sandbox, f.host, f.port, key, limits) as url:
            print(f"serving {url}/run_code with the key {key}", flush=True)
            await stop_requested.wait()


def serve() -> None:
    from agentrl_jax.launch.api_keys import resolve_api_key

    f = flags.FLAGS
    limits = SandboxLimits(seconds=f.seconds, memory_mb=f.memory_mb)
    config = SandboxConfig(f.minimum, limits, tuple(f.modules))
    key = resolve_api_key(f.api_key_variable)
    asyncio.run(_serve(config, key, dataclass_flags.from_flags(ServerLimits).check()))


def main() -> None:
    sys.exit(cli.run(serve))


if __name__ == "__main__":
    main()

"""Serve a checkpoint as OpenAI's chat completions and completions, on loopback, until Ctrl-C.

agentrl-serve --run_dir=runs/quickstart [--phase=sft] [--port=8000]
agentrl-serve --model=FOLDER --positions=4096 --api_key_variable=MY_KEY

It prints the address and the key that clients must send: a new one each time, unless an environment
variable holds it.
"""

import sys
from pathlib import Path

from absl import flags

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.launch import cli, dataclass_flags
from agentrl_jax.launch.garbage_collection import collect_seldom

cli.define_run_flags("The run whose policy is served.")
flags.DEFINE_string("model", "", "Or the folder of a Hugging Face model.")
flags.DEFINE_string("dtype", "float32", "Of that model's weights and activations.")
flags.DEFINE_string(
    "name", "policy", "The model's name; requests for any other name are answered too."
)
flags.DEFINE_integer(
    "positions",
    0,
    "Tokens of a prompt and its completion; 0: as the run's engine, or 2048.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "rows", 0, "Completions generated at once; 0: as the run's engine, or 16.", lower_bound=0
)
flags.DEFINE_string(
    "host",
    "127.0.0.1",
    "Where to listen: another address than loopback admits other machines with the key.",
)
flags.DEFINE_integer("port", 8000, "Where to listen; 0: any.", lower_bound=0, upper_bound=65535)
flags.DEFINE_string(
    "api_key_variable",
    "",
    "The environment variable that holds the key; empty: a new one, which is printed.",
)
dataclass_flags.define_flags(ServerLimits)


def serve() -> None:
    import asyncio

    from agentrl_jax.errors import UserError
    from agentrl_jax.launch import serving
    from agentrl_jax.launch.api_keys import resolve_api_key

    f = flags.FLAGS
    if bool(f.run_dir) == bool(f.model):
        raise UserError(
            "give --run_dir=runs/... to serve a run's policy, or --model=FOLDER for a "
            "Hugging Face model"
        )
    serving.check_dtype(f.dtype)
    cli.trust_named(f.trust)
    limits = dataclass_flags.from_flags(ServerLimits).check()
    key = resolve_api_key(f.api_key_variable)
    if f.run_dir:
        served = serving.served_from_run(
            Path(f.run_dir), f.phase, f.agent, f.positions, f.rows, cli.wants_best()
        )
    else:
        served = serving.served_from_folder(Path(f.model), f.dtype, f.positions, f.rows)
    collect_seldom()
    asyncio.run(
        serving.serve_until_signal(
            served, f.name, f.host, f.port, key, limits, print_key=not f.api_key_variable
        )
    )


def main() -> None:
    sys.exit(cli.run(serve))


if __name__ == "__main__":
    main()

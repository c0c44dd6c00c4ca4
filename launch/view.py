"""Show runs in a local web page: episodes, tokens, groups, timelines, curves; until Ctrl-C.

agentrl-view runs/quickstart
agentrl-view runs/one runs/other --port=8100
agentrl-view runs/quickstart --export=quickstart.html --episodes=200

It prints the page's address. A run in progress is followed. With --export it writes one file, which
needs no server and loads nothing, and exits.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from agentrl_jax.launch import cli

flags.DEFINE_multi_string(
    "run_dir", [], "A run folder; words that are no flags are run folders too."
)
flags.DEFINE_string(
    "host",
    "127.0.0.1",
    "Where to listen: another address than loopback admits everyone who reaches it.",
)
flags.DEFINE_integer("port", 8080, "Where to listen; 0: any.", lower_bound=0, upper_bound=65535)
flags.DEFINE_string("export", "", "Write this HTML file instead of serving.")
flags.DEFINE_integer(
    "episodes", 200, "Of each run, those of the last steps, in that file.", lower_bound=0
)


def view() -> None:
    from agentrl_jax.errors import UserError
    from agentrl_jax.viewer.export import export_page
    from agentrl_jax.viewer.run_view import RunView

    f = flags.FLAGS
    if not f.run_dir:
        raise UserError("give a run folder: agentrl-view runs/...")
    runs = [RunView(Path(folder)) for folder in f.run_dir]
    if not f.export:
        return serve(runs, f.host, f.port)
    for run in runs:
        run.refresh()
    export_page(runs, Path(f.export), f.episodes)
    print(f"{f.export}: {Path(f.export).stat().st_size / 1e6:.1f} MB")


def serve(runs: Sequence, host: str, port: int) -> None:
    """Serve until Ctrl-C."""
    from agentrl_jax.viewer.server import ViewerServer

    with ViewerServer(runs, host, port) as server:
        print(f"http://{host}:{server.server_port}/", flush=True)
        server.serve_forever()


def run_dirs_as_flags(argv: Sequence[str]) -> list[str]:
    """["agentrl-view", "runs/a", "--port=1"] -> ["agentrl-view", "--run_dir=runs/a", "--port=1"]"""
    words = [x if x.startswith("-") else f"--run_dir={x}" for x in argv[1:]]
    return [argv[0], *words]


def main() -> None:
    sys.exit(cli.run(view, run_dirs_as_flags(sys.argv)))


if __name__ == "__main__":
    main()

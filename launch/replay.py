"""Sample the recorded calls of a run again, from its log and its checkpoints, and compare.

agentrl-replay --run_dir=runs/quickstart [--phase=rl] [--limit=100]

Weights are at hand for the steps whose checkpoints the run has kept, and for those that the phase
started with (docs/trajectory_log.md). The exit status is 0 where every token is the recorded one, 1
where one is not, 2 where nothing can be sampled again.
"""

import sys
from pathlib import Path

from absl import flags

from agentrl_jax.launch import cli

cli.define_phase_flags("The run whose recorded calls are sampled again.")
flags.DEFINE_integer(
    "limit", 100, "The most calls of a checkpoint that are sampled again.", lower_bound=1
)


def replay() -> None:
    from agentrl_jax.errors import UserError
    from agentrl_jax.launch import replaying

    f = flags.FLAGS
    cli.trust_named(f.trust)
    if not f.run_dir:
        raise UserError("give a run with --run_dir=runs/...")
    if not replaying.replay(Path(f.run_dir), f.phase, f.agent, f.limit):
        raise SystemExit(1)


def main() -> None:
    sys.exit(cli.run(replay))


if __name__ == "__main__":
    main()

"""Train: agentrl-train --config=configs/wordle_grpo.py [--config.seed=1 ...] [--run_dir=runs/mine]
[--fresh]

Running the same command again resumes where it stopped; a finished run prints its table. On a TPU
pod, under Slurm and on GKE the same command on every machine starts one run of all processes.
Processes started by hand need the coordinator's address:

    agentrl-train --config=... --run_dir=/shared/mine --coordinator=host0:8476 --processes=2 \\
        --process_id=0   (and 1 on the other)
"""

import sys
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from agentrl_jax.launch import cli
from agentrl_jax.launch.garbage_collection import collect_seldom
from agentrl_jax.launch.run_flags import define_run_flags
from agentrl_jax.launch.trackers import define_tracking_flags, make_trackers

config_flags.DEFINE_config_file(
    "config",
    help_string="A config file, or file.py:variant; --config.field=value overrides a field.",
)
flags.DEFINE_string("run_dir", "", "The run folder; empty: runs/ and the config's name.")
flags.DEFINE_bool("fresh", False, "Delete the run folder and start over.")
flags.DEFINE_bool("quiet", False, "Print only warnings, errors and the table.")
define_run_flags()
define_tracking_flags()
cli.define_trust_flag()
cli.define_xla_flag()


def train() -> None:
    import agentrl_jax.envs  # noqa: F401  registers the environments
    from agentrl_jax.compiler.compilation_cache import enable_compilation_cache
    from agentrl_jax.distributed.process_group import initialize
    from agentrl_jax.training import loop
    from agentrl_jax.training.profiling import parse_profiled_steps

    cli.trust_named(flags.FLAGS.trust)
    experiment = cli.experiment_from_flags()
    run_dir = Path(flags.FLAGS.run_dir) if flags.FLAGS.run_dir else experiment.default_run_dir
    f = flags.FLAGS
    timeouts = experiment.environment.timeouts
    with initialize(f.coordinator, f.processes, f.process_id, timeouts) as processes:
        enable_compilation_cache(f.compilation_cache)
        collect_seldom()
        loop.train(
            experiment,
            run_dir,
            fresh=f.fresh,
            quiet=f.quiet,
            process_group=processes,
            max_nonfinite_updates=f.max_nonfinite_updates,
            invariants=f.invariants,
            trackers=make_trackers(f.trackers),
            profiled=parse_profiled_steps(f.profile_steps),
            damaged_records=f.damaged_records,
        )


def main() -> None:
    sys.exit(cli.run(train))


if __name__ == "__main__":
    main()

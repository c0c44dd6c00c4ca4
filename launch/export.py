"""Write a run's policy as the folder of a Hugging Face model, adapters merged.

python -m agentrl_jax.launch.export --run_dir=runs/base_model --folder=FOLDER [--dtype=bfloat16]
"""

import sys
from pathlib import Path

from absl import flags

from agentrl_jax.launch import cli

cli.define_run_flags("The run whose policy is written.")
flags.DEFINE_string("folder", "", "Where; it holds no model yet.")
flags.DEFINE_string("dtype", "bfloat16", "Of the weights in the files.")


def export() -> None:
    from agentrl_jax.errors import UserError
    from agentrl_jax.launch import exporting

    f = flags.FLAGS
    if not f.run_dir or not f.folder:
        raise UserError("give --run_dir=runs/... and --folder=FOLDER")
    cli.trust_named(f.trust)
    exporting.export_policy(
        Path(f.run_dir), Path(f.folder), f.dtype, f.phase, f.agent, cli.wants_best()
    )


def main() -> None:
    sys.exit(cli.run(export))


if __name__ == "__main__":
    main()

"""Train on a GPU cluster: agentrl-slurm submit|stop --name=NAME --config=FILE [--flags] [-- flags
of agentrl-train]

submit  passes a job to sbatch that starts one process a node, or a GPU
stop    cancels it (--job=NUMBER); the same submit resumes from its last checkpoint
"""

import sys

from agentrl_jax.launch import dataclass_flags
from agentrl_jax.launch.slurm.job import SlurmRun


def main() -> None:
    sys.exit(dataclass_flags.run_launcher(SlurmRun, ("submit", "stop"), __doc__))


if __name__ == "__main__":
    main()

"""Train on a GPU cluster: agentrl-slurm submit|stop --name=NAME --config=FILE [--flags] [-- flags of agentrl-train]

submit  hands a job to sbatch that starts one process a node, or a GPU
stop    cancels it (--job=NUMBER); the same submit goes on from its last checkpoint
"""

import sys

from agentrl_jax.launch import options
from agentrl_jax.launch.slurm.job import SlurmRun


def main() -> None:
    sys.exit(options.launcher(SlurmRun, ("submit", "stop"), __doc__))


if __name__ == "__main__":
    main()

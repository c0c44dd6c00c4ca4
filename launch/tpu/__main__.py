"""Train on a TPU VM: agentrl-tpu ACTION --name=NAME --zone=ZONE [--flags] [-- train's flags]

ACTION is one of:

up      creates the machine (--queued: as a queued resource) or reuses it; installs the wheel on
        all workers
start   starts the run on all workers, in the background
state   prints the state of the machine and of each worker
log     follows the log of a worker
stop    ends the run as Ctrl-C does: it checkpoints and exits
down    deletes the machine
run     up and start, then watch; a machine that was preempted is recreated and the run resumes
"""

import sys

from agentrl_jax.launch import dataclass_flags
from agentrl_jax.launch.tpu.run import TpuRun


def main() -> None:
    sys.exit(
        dataclass_flags.run_launcher(
            TpuRun, ("up", "start", "state", "log", "stop", "down", "run"), __doc__
        )
    )


if __name__ == "__main__":
    main()

"""Train on a TPU VM: agentrl-tpu up|start|state|log|stop|down|run --name=NAME --zone=ZONE [--flags] [-- flags of agentrl-train]

up      makes the machine (--queued: as a queued resource) or reuses it, and installs the wheel on all workers
start   starts the run on all workers, in the background
state   says what the machine and each worker are at
log     shows what a worker prints, as it comes
stop    ends the run as Ctrl-C does: it saves and leaves
down    deletes the machine
run     up and start, then watches; a machine that was preempted is made anew and the run goes on
"""

import sys

from agentrl_jax.launch import options
from agentrl_jax.launch.tpu.run import TpuRun


def main() -> None:
    sys.exit(options.launcher(TpuRun, ("up", "start", "state", "log", "stop", "down", "run"), __doc__))


if __name__ == "__main__":
    main()

"""Train on Kubernetes: agentrl-gke submit|state|log|stop --name=NAME --image=IMAGE [--flags] [--
flags of agentrl-train]

submit  passes a JobSet with the config file to kubectl apply; all restart when one is lost
state   shows the JobSet and its pods
log     follows the output of all processes
stop    deletes the run's objects; what is on the claim stays
"""

import sys

from agentrl_jax.launch import dataclass_flags
from agentrl_jax.launch.gke.run import GkeRun


def main() -> None:
    sys.exit(dataclass_flags.run_launcher(GkeRun, ("submit", "state", "log", "stop"), __doc__))


if __name__ == "__main__":
    main()

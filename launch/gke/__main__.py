"""Train on Kubernetes: agentrl-gke submit|state|log|stop --name=NAME --image=IMAGE [--flags] [-- flags of agentrl-train]

submit  hands a JobSet with the config file to kubectl apply; a process that is lost restarts all
state   shows the JobSet and its pods
log     shows what all processes print, as it comes
stop    deletes the run's objects; what is on the claim stays
"""

import sys

from agentrl_jax.launch import options
from agentrl_jax.launch.gke.run import GkeRun


def main() -> None:
    sys.exit(options.launcher(GkeRun, ("submit", "state", "log", "stop"), __doc__))


if __name__ == "__main__":
    main()

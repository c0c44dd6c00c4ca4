"""The battery in a process of its own: `python -m ... RUNG USER` prints the results as JSON.

USER is empty, or the number of the user as which it runs, which root alone may choose.
"""

import json
import os
import sys

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.sandbox.battery import ATTACKS, Battery
from agentrl_jax.sandbox import folders
from agentrl_jax.sandbox.ladder import Rung, SandboxConfig, open_rung

NOBODY = 65534


def become(user: int) -> None:
    """Continue as a user who may do nothing in particular, and still reach Python and this code."""
    folders.expose([sys.prefix, sys.base_prefix, *filter(None, sys.path)])
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.environ["HOME"] = "/"


def main(rung: str, user: str) -> None:
    if user:
        become(int(user))
    try:
        sandbox = open_rung(Rung[rung], SandboxConfig())
    except UserError as error:
        print(json.dumps({"absent": str(error)}))
        return
    with sandbox, Battery() as battery:
        results = {attack.name: battery.run(attack, sandbox).achieved for attack in ATTACKS}
    print(json.dumps({"description": sandbox.description, "results": results}))


if __name__ == "__main__":
    main(*sys.argv[1:])

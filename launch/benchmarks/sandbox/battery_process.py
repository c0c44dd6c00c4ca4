"""The battery in a process of its own: `python -m ... RUNG USER HOST` prints its results.

USER is empty, or the number of the user as which it runs, which root alone may choose. HOST is
empty, or "bare": as in a container whose processes have neither users nor namespaces to give; or
"old": as that, with the first version of Landlock (Linux 5.13).
"""

import json
import os
import sys
from dataclasses import replace

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.sandbox.battery import ATTACKS, Battery
from agentrl_jax.sandbox import folders
from agentrl_jax.sandbox.ladder import Rung, SandboxConfig, open_rung, zygote_config
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox

NOBODY = 65534


def become(user: int) -> None:
    """Continue as a user who may do nothing in particular, and still reach Python and this code."""
    folders.expose([sys.prefix, sys.base_prefix, *filter(None, sys.path)])
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.environ["HOME"] = "/"


def main(rung: str, user: str, host: str) -> None:
    if user:
        become(int(user))
    try:
        if host:
            abi = 1 if host == "old" else 99
            config = replace(zygote_config(), isolation=(False, False, False), max_abi=abi)
            sandbox: Sandbox = ZygoteSandbox(config, SandboxLimits())
        else:
            sandbox = open_rung(Rung[rung], SandboxConfig())
    except UserError as error:
        print(json.dumps({"absent": str(error)}))
        return
    with sandbox, Battery() as battery:
        results = {attack.name: battery.run(attack, sandbox).achieved for attack in ATTACKS}
    print(json.dumps({"description": sandbox.description, "results": results}))


if __name__ == "__main__":
    main(*sys.argv[1:])

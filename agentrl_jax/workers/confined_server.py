"""A worker in the sandbox: `python -m agentrl_jax.workers.confined_server SANDBOX FOLDER ...`.

SANDBOX is a `WorkerSandbox` as JSON, FOLDER where it makes its temporary folder; what follows is as
for `agentrl_jax.workers.server`. With nothing after it, it only tells what protects a worker.
"""

import json
import os
import sys
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.worker_confinement import WorkerSandbox, confine_worker
from agentrl_jax.workers import server


def main(sandbox: str, folder: str, *numbers: str) -> None:
    """Confine this process, and answer requests."""
    fields: dict[str, Any] = json.loads(sandbox)
    own_folder = os.path.join(folder, f"worker-{os.getpid()}")
    os.mkdir(own_folder, 0o700)
    try:
        description = confine_worker(WorkerSandbox(**fields), own_folder)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    if numbers:
        server.main(*map(int, numbers))
    else:
        print(description)


if __name__ == "__main__":
    main(*sys.argv[1:])

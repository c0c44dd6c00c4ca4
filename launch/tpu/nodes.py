"""`Nodes`: TPU VMs of one kind, created by gcloud on demand or by a queued resource."""

import re
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.launch.external_tool import ExternalTool, ExternalToolError

READY = {"READY", "ACTIVE"}
LOST = {"PREEMPTED", "TERMINATED", "FAILED", "SUSPENDED"}
STOPPED = {"STOPPED", "STOPPING"}  # on purpose: it may be started again
ABSENT = "ABSENT"  # our name for a missing node; gcloud has none
_NOT_FOUND = re.compile("NOT_FOUND|not found", re.IGNORECASE)
_NO_CAPACITY = re.compile("no more capacity", re.IGNORECASE)
_FAILED_WORKER = re.compile(r"^agentrl: (\S+) failed", re.MULTILINE)


@dataclass
class Nodes:
    """`slices` TPU VMs that start and end together; several need a queued resource."""

    gcloud: ExternalTool
    name: str
    location_flags: tuple[str, ...]  # --zone, --project
    machine_flags: tuple[str, ...]  # --accelerator-type and so on
    queued: bool
    slices: int
    ready_timeout: float  # seconds to wait for a machine
    poll_interval: float  # seconds between two polls

    @property
    def names(self) -> list[str]:
        return [self.name] if self.slices == 1 else [f"{self.name}-{i}" for i in range(self.slices)]

    def state(self) -> str:
        """gcloud's state of the node, or ABSENT; READY in a dry run."""
        path = "value(state.state)" if self.queued else "value(state)"
        try:
            return self._tpu_command("describe", self.name, f"--format={path}").strip() or "READY"
        except ExternalToolError as error:
            if not _NOT_FOUND.search(error.output):
                raise
            return ABSENT

    def ensure(self) -> None:
        """Create missing nodes, recreate preempted ones, and wait until all are ready."""
        until, state = time.monotonic() + self.ready_timeout, self.state()
        if self.gcloud.dry_run:
            self._create()
        while state not in READY:
            if state in STOPPED:
                raise UserError(f"{self.name} is {state}: start or delete it")
            if state in LOST:
                self.delete()
            if state in LOST or state == ABSENT:
                self._create()
            state = self.state()
            if state not in READY:
                if time.monotonic() > until:
                    raise UserError(
                        f"{self.name} is still {state} after {self.ready_timeout:g} s; it was "
                        "not deleted"
                    )
                time.sleep(self.poll_interval)

    def _create(self) -> None:
        nodes = (
            [f"--node-id={self.name}"]
            if self.slices == 1
            else [f"--node-count={self.slices}", f"--node-prefix={self.name}"]
        )
        try:
            self._tpu_command(
                "create",
                self.name,
                *self.machine_flags,
                *(["--async", *nodes] if self.queued else []),
            )
        except ExternalToolError as error:
            if not _NO_CAPACITY.search(error.output):
                raise

    def delete(self) -> None:
        self._tpu_command("delete", self.name, "--quiet", *(["--force"] if self.queued else []))

    def _tpu_command(self, verb: str, *arguments: str) -> str:
        return self.gcloud(
            "compute",
            "tpus",
            "queued-resources" if self.queued else "tpu-vm",
            verb,
            *arguments,
            *self.location_flags,
        )

    def copy(self, files: Sequence[str], folder: str) -> None:
        """Copy the files into a folder of every worker's home."""
        self._map_nodes(
            lambda node: self._vm_command("scp", *files, f"{node}:{folder}/", "--worker=all")
        )

    def run_on_workers(self, *argv: str) -> str:
        """Run a command on every worker and return the output.

        Raises:
            ExternalToolError: it failed; names the workers where it did.
        """
        return "".join(
            self._map_nodes(
                lambda node: self._vm_command(
                    "ssh", node, "--worker=all", f"--command={shlex.join(argv)}"
                )
            )
        )

    def follow(self, worker: str, *argv: str) -> None:
        """Stream the output of a command on one worker of the first slice, until Ctrl-C."""
        command = f"--command={shlex.join(argv)}"
        self.gcloud(
            "compute",
            "tpus",
            "tpu-vm",
            "ssh",
            self.names[0],
            f"--worker={worker}",
            command,
            *self.location_flags,
            "--quiet",
            follow=True,
        )

    def _vm_command(self, verb: str, *arguments: str) -> str:
        try:
            return self.gcloud(
                "compute", "tpus", "tpu-vm", verb, *arguments, *self.location_flags, "--quiet"
            )
        except ExternalToolError as error:
            failed = sorted(set(_FAILED_WORKER.findall(error.output)))
            if not failed:
                raise
            raise ExternalToolError(
                f"worker {', '.join(failed)} failed. {error}", error.output
            ) from error

    def _map_nodes(self, function: Callable[[str], str]) -> list[str]:
        if self.slices == 1 or self.gcloud.dry_run:
            return [function(node) for node in self.names]
        with ThreadPoolExecutor(self.slices) as pool:
            return list(pool.map(function, self.names))

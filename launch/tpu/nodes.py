"""`Nodes`: TPU VMs of one kind, made by gcloud on demand or out of a queued resource."""

import re
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import Tool, ToolFailed

READY = {"READY", "ACTIVE"}
LOST = {"PREEMPTED", "TERMINATED", "FAILED", "SUSPENDED"}
STOPPED = {"STOPPED", "STOPPING"}  # somebody means to start it again
ABSENT = "ABSENT"  # ours, gcloud has no word for it
_NOT_THERE = re.compile("NOT_FOUND|not found", re.IGNORECASE)
_NO_ROOM = re.compile("no more capacity", re.IGNORECASE)
_GUILTY = re.compile(r"^agentrl: (\S+) failed", re.MULTILINE)


@dataclass
class Nodes:
    """`slices` TPU VMs that start and end together; several come out of a queued resource."""

    gcloud: Tool
    name: str
    where: tuple[str, ...]  # --zone, --project
    kind: tuple[str, ...]  # --accelerator-type and so on
    queued: bool
    slices: int
    patience: float  # seconds that a machine is waited for
    pause: float  # seconds between two looks

    @property
    def names(self) -> list[str]:
        return [self.name] if self.slices == 1 else [f"{self.name}-{i}" for i in range(self.slices)]

    def state(self) -> str:
        """What gcloud calls it, or ABSENT; READY in a dry run."""
        path = "value(state.state)" if self.queued else "value(state)"
        try:
            return self._resource("describe", self.name, f"--format={path}").strip() or "READY"
        except ToolFailed as error:
            if not _NOT_THERE.search(error.output):
                raise
            return ABSENT

    def ensure(self) -> None:
        """Make them unless they are there, and wait until they are ready; what was preempted is made anew."""
        until, state = time.monotonic() + self.patience, self.state()
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
                    raise UserError(f"{self.name} is still {state} after {self.patience:g} s; it was left as it is")
                time.sleep(self.pause)

    def _create(self) -> None:
        nodes = [f"--node-id={self.name}"] if self.slices == 1 else [f"--node-count={self.slices}", f"--node-prefix={self.name}"]
        try:
            self._resource("create", self.name, *self.kind, *(["--async", *nodes] if self.queued else []))
        except ToolFailed as error:
            if not _NO_ROOM.search(error.output):
                raise

    def delete(self) -> None:
        self._resource("delete", self.name, "--quiet", *(["--force"] if self.queued else []))

    def _resource(self, verb: str, *arguments: str) -> str:
        return self.gcloud("compute", "tpus", "queued-resources" if self.queued else "tpu-vm", verb, *arguments, *self.where)

    def copy(self, files: Sequence[str], folder: str) -> None:
        """The files onto every worker, in a folder of its home."""
        self._each(lambda node: self._vm("scp", *files, f"{node}:{folder}/", "--worker=all"))

    def tell(self, *argv: str) -> str:
        """Have every worker run a command. Raises ToolFailed that names the workers where it failed."""
        return "".join(self._each(lambda node: self._vm("ssh", node, "--worker=all", f"--command={shlex.join(argv)}")))

    def follow(self, worker: str, *argv: str) -> None:
        """Show what a command of one worker of the first slice prints, until somebody presses Ctrl-C."""
        command = f"--command={shlex.join(argv)}"
        self.gcloud("compute", "tpus", "tpu-vm", "ssh", self.names[0], f"--worker={worker}", command, *self.where, "--quiet", follow=True)

    def _vm(self, verb: str, *arguments: str) -> str:
        try:
            return self.gcloud("compute", "tpus", "tpu-vm", verb, *arguments, *self.where, "--quiet")
        except ToolFailed as error:
            guilty = sorted(set(_GUILTY.findall(error.output)))
            if not guilty:
                raise
            raise ToolFailed(f"worker {', '.join(guilty)} failed. {error}", error.output) from error

    def _each(self, act: Callable[[str], str]) -> list[str]:
        if self.slices == 1 or self.gcloud.dry_run:
            return [act(node) for node in self.names]
        with ThreadPoolExecutor(self.slices) as pool:
            return list(pool.map(act, self.names))

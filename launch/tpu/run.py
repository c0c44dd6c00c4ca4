"""`TpuRun`: a training run on all workers of TPU VMs, from the wheel to the last step."""

import hashlib
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import Tool, ToolFailed
from agentrl_jax.launch.options import option
from agentrl_jax.launch.tpu.nodes import READY, Nodes
from agentrl_jax.launch.training import Training

WORKER = Path(__file__).parent / "worker.sh"
MISSES = 3  # times in a row that a ready machine may not answer
_SAID = re.compile(r"^agentrl: (\S+) (running|finished|idle|failed.*)$", re.MULTILINE)


@dataclass
class TpuRun(Training):
    zone: str = option("", "Of the TPU, such as us-east5-b.")
    project: str = option("", "The Google Cloud project; empty: gcloud's own default.")
    accelerator: str = option("v5litepod-16", "What gcloud calls --accelerator-type.")
    version: str = option("v2-alpha-tpuv5-lite", "The machines' software, gcloud's --version or --runtime-version.")
    queued: bool = option(False, "Wait in the queue of Google Cloud, as a queued resource.")
    spot: bool = option(False, "Cheaper machines that may be taken away.")
    slices: int = option(1, "Slices that train together; more than one need --queued.", 1)
    service_account: str = option("", "Whom the machines act for; it must be allowed to read the secrets.")
    wheel: str = option("", "The wheel of this project, such as dist/agentrl_jax-0.1.0-py3-none-any.whl.")
    copy: tuple[str, ...] = option((), "A file to lie beside the config, such as a module of yours; may be repeated.")
    setup: str = option("", "A shell script that each worker runs before the wheel is installed, such as one that mounts a bucket.")
    python: str = option("3.12", "The version that is installed where the machine's own is older than 3.11.")
    worker: str = option("0", "Whose log is shown.")
    lines: int = option(100, "Of the log that is there already.", 0)
    restarts: int = option(20, "Times that `run` makes preempted machines anew.", 0)
    patience: float = option(86400.0, "Seconds that machines are waited for.", 0.0)
    pause: float = option(30.0, "Seconds between two looks.", 0.0)
    grace: int = option(120, "Seconds that a run gets to save itself when it is stopped.", 0)

    def __post_init__(self) -> None:
        self.check()
        if not self.zone:
            raise UserError("say where with --zone=us-east5-b")
        if self.slices > 1 and not self.queued:
            raise UserError("several slices come out of a queued resource: add --queued")
        where = (f"--zone={self.zone}", *([f"--project={self.project}"] if self.project else []))
        version = "--runtime-version" if self.queued else "--version"
        kind = [f"--accelerator-type={self.accelerator}", f"{version}={self.version}", *(["--spot"] if self.spot else [])]
        if self.service_account:
            kind += [f"--service-account={self.service_account}", "--scopes=cloud-platform"]
        gcloud = Tool("gcloud", self.dry_run)
        self._nodes = Nodes(gcloud, self.name, where, tuple(kind), self.queued, self.slices, self.patience, self.pause)
        self._folder = f"agentrl/{self.name}"

    def up(self) -> None:
        """Machines, made or reused, with the wheel on all workers."""
        wheel = local(self.wheel, "--wheel")
        setup = [local(self.setup, "--setup")] if self.setup else []
        if not re.fullmatch(r"agentrl_jax-[\w.+]+-py3-none-any\.whl", wheel.name):
            raise UserError(f"--wheel={self.wheel} is no wheel of agentrl_jax: make one with `python -m build --wheel`")
        self._nodes.ensure()
        self._nodes.tell("mkdir", "-p", self._folder)
        self._nodes.copy([str(path) for path in (WORKER, wheel, *setup)], self._folder)
        pinned = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self._tell("install", wheel.name, pinned, self.python, *(path.name for path in setup))

    def start(self) -> None:
        """The run on all workers, in the background; the one that is running already is left alone."""
        file, colon, variant = self.config.partition(":")
        files = [local(path, "--config or --copy") for path in (file, *self.copy)]
        command = self.train("venv/bin/python", f"{files[0].name}{colon}{variant}", self.run_dir or f"runs/{self.name}")
        secrets = [f"{variable}={name}" for variable, name in self.references().items()]
        running = [state == "running" for state in self._states().values()]
        if any(running):
            if not all(running):
                raise UserError(f"{self.name} is running on some workers only: agentrl-tpu stop, then start again")
            say(f"{self.name} is running already")
            return
        self._nodes.copy([str(path) for path in files], self._folder)
        self._tell("start", *secrets, "--", *command)

    def state(self) -> None:
        """What the machines and the workers are at."""
        state = self._nodes.state()
        say(f"{self.name}: {state}")
        if state in READY:
            for worker, word in sorted(self._states().items()):
                say(f"{worker}: {word}")

    def log(self) -> None:
        """What a worker prints, as it comes."""
        self._nodes.follow(self.worker, "bash", f"{self._folder}/worker.sh", "log", str(self.lines))

    def stop(self) -> None:
        """End the run as Ctrl-C does: it saves and leaves; the machines stay."""
        self._tell("stop", str(self.grace))

    def down(self) -> None:
        """Delete the machines with all that is on them."""
        self._nodes.delete()

    def run(self) -> None:
        """`up`, `start`, and watch until it is finished; machines that are taken away are made anew and the run goes on."""
        for _ in range(self.restarts + 1):
            try:
                self.up()
                self.start()
                return self._watch()
            except ToolFailed:
                if self._nodes.state() in READY:
                    raise
            say(f"{self.name} was preempted")
        raise UserError(f"{self.name} was preempted {self.restarts + 1} times: the same command goes on")

    def _watch(self) -> None:
        misses = 0
        while not self.dry_run:
            try:
                states, misses = self._states(), 0
            except ToolFailed:
                misses += 1
                if misses == MISSES or self._nodes.state() not in READY:
                    raise
                states = {}
            failed = [f"worker {worker} {word}" for worker, word in sorted(states.items()) if word not in ("running", "finished")]
            if failed:
                time.sleep(self.pause)  # a machine that is taken away has its run stopped before it says so
                if self._nodes.state() not in READY:
                    raise ToolFailed(f"{self.name} is gone", "")
                self.stop()
                raise UserError(f"{'; '.join(failed)}; the others were stopped. Its last words are above, agentrl-tpu log shows more")
            if states and set(states.values()) == {"finished"}:
                return say(f"{self.name} is finished on {len(states)} workers")
            time.sleep(self.pause)

    def _states(self) -> dict[str, str]:
        """What each worker says of the run."""
        said = self._tell("state")
        states = dict(_SAID.findall(said))
        for line in said.splitlines():
            if line.partition(": ")[0] in states:  # the last words of a failed one
                say(line)
        return states

    def _tell(self, *argv: str) -> str:
        return self._nodes.tell("bash", f"{self._folder}/worker.sh", *argv)


def local(path: str, flag: str) -> Path:
    """The absolute path of a file here. Raises UserError where there is none."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path!r}: see {flag}")
    return Path(path).absolute()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

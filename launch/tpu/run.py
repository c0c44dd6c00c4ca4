"""`TpuRun`: a training run on all workers of TPU VMs, from the wheel to the last step."""

import hashlib
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.external_tool import ExternalTool, ExternalToolError
from agentrl_jax.launch.job_spec import JobSpec
from agentrl_jax.launch.tpu.nodes import READY, Nodes

WORKER_SCRIPT = Path(__file__).parent / "worker.sh"
MAX_MISSES = 3  # times in a row that a ready machine may fail to answer
_WORKER_STATE = re.compile(r"^agentrl: (\S+) (running|finished|idle|failed.*)$", re.MULTILINE)


@dataclass
class TpuRun(JobSpec):
    zone: str = option("", "The TPU's zone, such as us-east5-b.")
    project: str = option("", "The Google Cloud project; empty: gcloud's own default.")
    accelerator: str = option("v5litepod-16", "gcloud's --accelerator-type.")
    version: str = option(
        "v2-alpha-tpuv5-lite", "The machines' software, gcloud's --version or --runtime-version."
    )
    queued: bool = option(False, "Wait in the queue of Google Cloud, as a queued resource.")
    spot: bool = option(False, "Spot machines: cheaper, and may be preempted.")
    slices: int = option(1, "Slices that train together; more than one need --queued.", 1)
    service_account: str = option(
        "", "The machines' service account; it must be allowed to read the secrets."
    )
    wheel: str = option(
        "", "The wheel of this project, such as dist/agentrl_jax-0.1.0-py3-none-any.whl."
    )
    copy: tuple[str, ...] = option(
        (), "A file to copy next to the config, such as a module of yours; may be repeated."
    )
    setup: str = option(
        "",
        "A shell script that each worker runs before the wheel is installed, such as one that "
        "mounts a bucket.",
    )
    python: str = option(
        "3.12", "The Python version to install where the machine's own is older than 3.11."
    )
    worker: str = option("0", "The worker whose log is shown.")
    lines: int = option(100, "Lines of the existing log to show first.", 0)
    restarts: int = option(20, "Times that `run` recreates preempted machines.", 0)
    ready_timeout: float = option(86400.0, "Seconds to wait for the machines.", 0.0)
    poll_interval: float = option(30.0, "Seconds between two polls.", 0.0)
    stop_grace: int = option(120, "Seconds that a run gets to save itself when it is stopped.", 0)

    def __post_init__(self) -> None:
        self.check()
        if not self.zone:
            raise UserError("give the zone with --zone=us-east5-b")
        if self.slices > 1 and not self.queued:
            raise UserError("several slices need a queued resource: add --queued")
        location = (f"--zone={self.zone}", *([f"--project={self.project}"] if self.project else []))
        version = "--runtime-version" if self.queued else "--version"
        kind = [
            f"--accelerator-type={self.accelerator}",
            f"{version}={self.version}",
            *(["--spot"] if self.spot else []),
        ]
        if self.service_account:
            kind += [f"--service-account={self.service_account}", "--scopes=cloud-platform"]
        gcloud = ExternalTool("gcloud", self.dry_run)
        self._nodes = Nodes(
            gcloud,
            self.name,
            location,
            tuple(kind),
            self.queued,
            self.slices,
            self.ready_timeout,
            self.poll_interval,
        )
        self._folder = f"agentrl/{self.name}"

    def up(self) -> None:
        """Create or reuse the machines, and install the wheel on all workers."""
        wheel = existing_file(self.wheel, "--wheel")
        setup = [existing_file(self.setup, "--setup")] if self.setup else []
        if not re.fullmatch(r"agentrl_jax-[\w.+]+-py3-none-any\.whl", wheel.name):
            raise UserError(
                f"--wheel={self.wheel} is no wheel of agentrl_jax: make one with `python -m "
                "build --wheel`"
            )
        self._nodes.ensure()
        self._nodes.run_on_workers("mkdir", "-p", self._folder)
        self._nodes.copy([str(path) for path in (WORKER_SCRIPT, wheel, *setup)], self._folder)
        pinned = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self._run_worker_script(
            "install", wheel.name, pinned, self.python, *(path.name for path in setup)
        )

    def start(self) -> None:
        """Start the run on all workers, in the background, unless it is running already."""
        file, colon, variant = self.config.partition(":")
        files = [existing_file(path, "--config or --copy") for path in (file, *self.copy)]
        command = self.train_command(
            "venv/bin/python",
            f"{files[0].name}{colon}{variant}",
            self.run_dir or f"runs/{self.name}",
        )
        secrets = [f"{variable}={name}" for variable, name in self.secret_references().items()]
        running = [state == "running" for state in self._worker_states().values()]
        if any(running):
            if not all(running):
                raise UserError(
                    f"{self.name} is running on some workers only: agentrl-tpu stop, then "
                    "start again"
                )
            print_status(f"{self.name} is running already")
            return
        self._nodes.copy([str(path) for path in files], self._folder)
        self._run_worker_script("start", *secrets, "--", *command)

    def state(self) -> None:
        """Print the state of the machines and of each worker."""
        state = self._nodes.state()
        print_status(f"{self.name}: {state}")
        if state in READY:
            for worker, worker_state in sorted(self._worker_states().items()):
                print_status(f"{worker}: {worker_state}")

    def log(self) -> None:
        """Follow the log of a worker."""
        self._nodes.follow(self.worker, "bash", f"{self._folder}/worker.sh", "log", str(self.lines))

    def stop(self) -> None:
        """End the run as Ctrl-C does: it checkpoints and exits; the machines stay."""
        self._run_worker_script("stop", str(self.stop_grace))

    def down(self) -> None:
        """Delete the machines with all that is on them."""
        self._nodes.delete()

    def run(self) -> None:
        """`up`, `start`, and watch until it is finished; preempted machines are recreated and the
        run resumes.
        """
        for _ in range(self.restarts + 1):
            try:
                self.up()
                self.start()
                return self._watch()
            except ExternalToolError:
                if self._nodes.state() in READY:
                    raise
            print_status(f"{self.name} was preempted")
        raise UserError(
            f"{self.name} was preempted {self.restarts + 1} times: the same command resumes it"
        )

    def _watch(self) -> None:
        misses = 0
        while not self.dry_run:
            try:
                states, misses = self._worker_states(), 0
            except ExternalToolError:
                misses += 1
                if misses == MAX_MISSES or self._nodes.state() not in READY:
                    raise
                states = {}
            failed = [
                f"worker {worker} {state}"
                for worker, state in sorted(states.items())
                if state not in ("running", "finished")
            ]
            if failed:
                # The run on a preempted machine ends before gcloud reports the preemption.
                time.sleep(self.poll_interval)
                if self._nodes.state() not in READY:
                    raise ExternalToolError(f"{self.name} is gone", "")
                self.stop()
                raise UserError(
                    f"{'; '.join(failed)}; the others were stopped. The end of its log is above, "
                    "agentrl-tpu log shows more"
                )
            if states and set(states.values()) == {"finished"}:
                return print_status(f"{self.name} is finished on {len(states)} workers")
            time.sleep(self.poll_interval)

    def _worker_states(self) -> dict[str, str]:
        """The state of the run on each worker."""
        reply = self._run_worker_script("state")
        states = dict(_WORKER_STATE.findall(reply))
        for line in reply.splitlines():
            if line.partition(": ")[0] in states:  # the end of a failed worker's log
                print_status(line)
        return states

    def _run_worker_script(self, *argv: str) -> str:
        return self._nodes.run_on_workers("bash", f"{self._folder}/worker.sh", *argv)


def existing_file(path: str, flag: str) -> Path:
    """The absolute path of a local file. Raises UserError where there is none."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path!r}: see {flag}")
    return Path(path).absolute()


def print_status(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

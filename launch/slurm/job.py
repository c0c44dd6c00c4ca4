"""`SlurmRun`: a training run as a batch job, one process a node or a GPU."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import Tool
from agentrl_jax.launch.command import INTERRUPTED
from agentrl_jax.launch.options import option
from agentrl_jax.launch.training import Training

WARNING = 120  # seconds before its time is up that a job is told to save and leave


@dataclass
class SlurmRun(Training):
    nodes: int = option(1, "Machines.", 1)
    gpus: int = option(8, "GPUs of each.", 1)
    process_per: str = option("node", "node: one process with all GPUs of a node; gpu: one process a GPU.")
    cpus: int = option(0, "CPU cores of each process; 0: as the cluster has it.", 0)
    time: str = option("", "The job's time limit, such as 24:00:00; it is queued again to go on when that is up.")
    requeues: int = option(20, "Times that the job is queued again.", 0)
    partition: str = option("", "Slurm's partition.")
    account: str = option("", "Slurm's account.")
    sbatch: tuple[str, ...] = option((), "A further option of sbatch, such as --sbatch=--constraint=h100; may be repeated.")
    python: str = option(".venv/bin/python", "A python with agentrl_jax[cuda], on a disk that all nodes see.")
    job: int = option(0, "The number of the job to stop.", 0)

    def __post_init__(self) -> None:
        self.check()
        if self.process_per not in ("node", "gpu"):
            raise UserError(f"--process_per must be node or gpu, not {self.process_per!r}")
        if not all(extra.startswith("-") for extra in self.sbatch):
            raise UserError("--sbatch is an option of sbatch with its dashes, such as --sbatch=--constraint=h100")
        for variable in self.secret:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
                raise UserError("--secret is the name of a variable of this environment, and no value: it travels with the job")

    def submit(self) -> None:
        """Hand the job to Slurm."""
        tasks = self.gpus if self.process_per == "gpu" else 1
        named = {"partition": self.partition, "account": self.account, "time": self.time, "cpus-per-task": self.cpus}
        options = [f"--{name}={value}" for name, value in named.items() if value]
        exported = ",".join(["HOME", "PATH", *self.secret])  # all that goes along of this environment
        options += [f"--export={exported}", "--requeue", "--open-mode=append", f"--signal=INT@{WARNING}", *self.sbatch]
        sizes = [f"--nodes={self.nodes}", f"--ntasks-per-node={tasks}", f"--gpus-per-node={self.gpus}"]
        Tool("sbatch", self.dry_run)(f"--job-name={self.name}", f"--output={self.name}-%j.log", *sizes, *options, stdin=self.script())

    def stop(self) -> None:
        """End a job; the same `submit` goes on from its last checkpoint."""
        if not self.job:
            raise UserError("say which job with --job=NUMBER, as sbatch told it")
        Tool("scancel", self.dry_run)(str(self.job))

    def script(self) -> str:
        """What runs on the first node: one step of processes that find each other through Slurm's variables."""
        train = self.train(self.python, str(Path(self.config).absolute()) if self.config else "", self.run_dir or f"runs/{self.name}")
        all_gpus = ",".join(map(str, range(self.gpus)))
        # Left alone, jax gives a process the one GPU whose number is SLURM_LOCALID: right for a process a GPU only.
        devices = [f"export JAX_LOCAL_DEVICE_IDS={all_gpus}"] if self.process_per == "node" else []
        cores = [f"--cpus-per-task={self.cpus}"] if self.cpus else []
        srun = ["srun", "--export=ALL", "--kill-on-bad-exit=1", "--gpu-bind=none", *cores, *train]
        return "\n".join(
            [
                "#!/usr/bin/env bash",
                "set -euo pipefail",
                *devices,
                "code=0",
                f"{shlex.join(srun)} || code=$?",
                f"if ((code == {INTERRUPTED} && ${{SLURM_RESTART_COUNT:-0}} < {self.requeues})); then",
                '  scontrol requeue "$SLURM_JOB_ID" # its time was up: it saved, left, and goes on later',
                "fi",
                'exit "$code"',
                "",
            ]
        )

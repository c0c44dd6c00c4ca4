"""`SlurmRun`: a training run as a batch job, one process a node or a GPU."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.cli import INTERRUPTED
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.external_tool import ExternalTool
from agentrl_jax.launch.job_spec import JobSpec

WARNING_SECONDS = 120  # seconds before its time limit at which a job is signaled to save and exit


@dataclass
class SlurmRun(JobSpec):
    nodes: int = option(1, "Machines.", 1)
    gpus: int = option(8, "GPUs of a machine.", 1)
    process_per: str = option(
        "node", "node: one process with all GPUs of a node; gpu: one process a GPU."
    )
    cpus: int = option(0, "CPU cores of each process; 0: the cluster's default.", 0)
    time: str = option(
        "", "The job's time limit, such as 24:00:00; it is requeued and resumes when that is up."
    )
    requeues: int = option(20, "Times that the job is requeued.", 0)
    partition: str = option("", "Slurm's partition.")
    account: str = option("", "Slurm's account.")
    sbatch: tuple[str, ...] = option(
        (), "A further option of sbatch, such as --sbatch=--constraint=h100; may be repeated."
    )
    python: str = option(
        ".venv/bin/python", "A python with agentrl_jax[cuda,report], on a disk that all nodes see."
    )
    job: int = option(0, "The number of the job to stop.", 0)

    def __post_init__(self) -> None:
        self.check()
        if self.process_per not in ("node", "gpu"):
            raise UserError(f"--process_per must be node or gpu, not {self.process_per!r}")
        if not all(extra.startswith("-") for extra in self.sbatch):
            raise UserError(
                "--sbatch is an option of sbatch with its dashes, such as "
                "--sbatch=--constraint=h100"
            )
        for variable in self.secret:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
                raise UserError(
                    "--secret is the name of a variable of this environment, and not a value: the "
                    "variable is exported to the job"
                )

    def submit(self) -> None:
        """Pass the job to sbatch."""
        tasks = self.gpus if self.process_per == "gpu" else 1
        named = {
            "partition": self.partition,
            "account": self.account,
            "time": self.time,
            "cpus-per-task": self.cpus,
        }
        options = [f"--{name}={value}" for name, value in named.items() if value]
        exported = ",".join(["HOME", "PATH", *self.secret])  # the job inherits no other variable
        options += [
            f"--export={exported}",
            "--requeue",
            "--open-mode=append",
            f"--signal=INT@{WARNING_SECONDS}",
            *self.sbatch,
        ]
        sizes = [
            f"--nodes={self.nodes}",
            f"--ntasks-per-node={tasks}",
            f"--gpus-per-node={self.gpus}",
        ]
        ExternalTool("sbatch", self.dry_run)(
            f"--job-name={self.name}",
            f"--output={self.name}-%j.log",
            *sizes,
            *options,
            stdin=self.script(),
        )

    def stop(self) -> None:
        """End a job; the same `submit` resumes from its last checkpoint."""
        if not self.job:
            raise UserError("give the job with --job=NUMBER, as sbatch printed it")
        ExternalTool("scancel", self.dry_run)(str(self.job))

    def script(self) -> str:
        """The batch script: one job step whose processes find each other by Slurm's variables."""
        train = self.train_command(
            self.python,
            str(Path(self.config).absolute()) if self.config else "",
            self.run_dir or f"runs/{self.name}",
        )
        all_gpus = ",".join(map(str, range(self.gpus)))
        # By default jax gives a process the one GPU whose number is SLURM_LOCALID: right only with
        # a process per GPU.
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
                f"if ((code == {INTERRUPTED} && ${{SLURM_RESTART_COUNT:-0}} < "
                f"{self.requeues})); then",
                '  scontrol requeue "$SLURM_JOB_ID" # out of time: it saved and exited, and '
                "resumes later",
                "fi",
                'exit "$code"',
                "",
            ]
        )

"""`GkeRun`: a training run as a JobSet on TPU slices or GPU nodes of a Kubernetes cluster."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.external_tool import ExternalTool
from agentrl_jax.launch.gke.manifests import (
    FILES,
    RUNS,
    Hardware,
    Manifest,
    config_map,
    job_set,
    pod,
    rbac_manifests,
)
from agentrl_jax.launch.job_spec import JobSpec


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as literal blocks."""


_Dumper.add_representer(
    str,
    lambda to, text: to.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


@dataclass
class GkeRun(JobSpec):
    image: str = option(
        "",
        "A container image with agentrl_jax[tpu,report] or [cuda,report], better by its "
        "digest than by a tag.",
    )
    tpu: str = option(
        "", "GKE's name of the TPU, such as tpu-v5-lite-podslice, tpu-v5p-slice or tpu-v6e-slice."
    )
    topology: str = option("4x4", "Topology of a TPU slice.")
    chips: int = option(4, "Chips of a TPU machine.", 1)
    slices: int = option(1, "TPU slices that train together.", 1)
    gpu: str = option("", "Or GKE's name of the GPU, such as nvidia-h100-80gb.")
    gpus: int = option(8, "GPUs of a GPU machine.", 1)
    nodes: int = option(1, "GPU machines.", 1)
    claim: str = option("", "A persistent volume claim for /runs: a bucket, a file store.")
    copy: tuple[str, ...] = option(
        (), "A file to copy next to the config, such as a module of yours; may be repeated."
    )
    python: str = option("python3", "The image's python.")
    namespace: str = option("default", "Namespace of the cluster.")
    restarts: int = option(20, "Times that all processes restart when one is lost.", 0)

    def __post_init__(self) -> None:
        self.check()
        self._kubectl = ExternalTool("kubectl", self.dry_run)

    def submit(self) -> None:
        """Create or update the objects of the run: kubectl apply."""
        self._run_kubectl(
            "apply",
            "--filename=-",
            stdin=yaml.dump_all(self.manifests(), Dumper=_Dumper, sort_keys=False, width=130),
        )

    def state(self) -> None:
        """The JobSet and its pods."""
        self._run_kubectl("get", f"jobset/{self.name}", follow=True)
        self._run_kubectl(
            "get",
            "pods",
            f"--selector=jobset.sigs.k8s.io/jobset-name={self.name}",
            "--output=wide",
            follow=True,
        )

    def log(self) -> None:
        """Follow the output of all processes, each line with the name of its pod."""
        pods = f"--selector=jobset.sigs.k8s.io/jobset-name={self.name}"
        self._run_kubectl(
            "logs",
            pods,
            "--prefix",
            "--follow",
            f"--max-log-requests={self.hardware().pods * self.slices}",
            follow=True,
        )

    def stop(self) -> None:
        """Delete the run's objects; what is on the claim stays, and the same `submit` resumes."""
        self._run_kubectl(
            "delete", "--ignore-not-found", f"jobset/{self.name}", f"configmap/{self.name}"
        )

    def hardware(self) -> Hardware:
        """The hardware of a pod. Raises UserError unless one of --tpu and --gpu is given."""
        if bool(self.tpu) == bool(self.gpu):
            raise UserError(
                "give the hardware: --tpu=tpu-v5-lite-podslice with --topology, or "
                "--gpu=nvidia-h100-80gb with --nodes"
            )
        if self.gpu:
            return Hardware(
                {"cloud.google.com/gke-accelerator": self.gpu},
                {"nvidia.com/gpu": self.gpus},
                self.nodes,
            )
        if not re.fullmatch(r"\d+x\d+(x\d+)?", self.topology):
            raise UserError(f"--topology={self.topology} is not of the form 4x4 or 2x2x4")
        total = math.prod(map(int, self.topology.split("x")))
        if total % self.chips and total > self.chips:
            raise UserError(
                f"a topology of {total} chips is not made of machines with --chips={self.chips}"
            )
        chips = min(total, self.chips)
        labels = {
            "cloud.google.com/gke-tpu-accelerator": self.tpu,
            "cloud.google.com/gke-tpu-topology": self.topology,
        }
        return Hardware(
            labels,
            {"google.com/tpu": chips},
            total // chips,
            self.slices,
            exclusive_node_pools=True,
        )

    def manifests(self) -> list[Manifest]:
        """All objects of the run, in the order in which they are created."""
        hardware = self.hardware()
        file, colon, variant = self.config.partition(":")
        files = [Path(path) for path in (file, *self.copy)]
        for path in files:
            if not path.is_file():
                raise UserError(f"there is no file {str(path)!r}: see --config and --copy")
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", path.name):
                raise UserError(
                    "a file that is copied to a cluster must have a name of letters, digits, "
                    f"dots and dashes, not {path.name!r}"
                )
        if not self.image:
            raise UserError(
                "give the container image with "
                "--image=REGION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:DIGEST"
            )
        command = self.train_command(
            self.python,
            f"{FILES}/{files[0].name}{colon}{variant}",
            self.run_dir or f"{RUNS}/{self.name}",
        )
        account = self.name if self.gpu else ""
        spec = pod(
            self.name, self.image, command, self.secret_references(), account, self.claim, hardware
        )
        permitted = rbac_manifests(account) if account else []
        return [
            config_map(self.name, files),
            *permitted,
            job_set(self.name, spec, hardware, self.restarts),
        ]

    def _run_kubectl(self, *arguments: str, stdin: str = "", follow: bool = False) -> None:
        self._kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin, follow=follow)

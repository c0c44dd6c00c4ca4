"""`GkeRun`: a training run as a JobSet on TPU slices or GPU nodes of a Kubernetes cluster."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import Tool
from agentrl_jax.launch.gke.manifests import FILES, RUNS, Hardware, Manifest, config_map, job_set, permission, pod
from agentrl_jax.launch.options import option
from agentrl_jax.launch.training import Training


class _Dumper(yaml.SafeDumper):
    """Files stand there as they are written."""


_Dumper.add_representer(str, lambda to, text: to.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))


@dataclass
class GkeRun(Training):
    image: str = option("", "A container image with agentrl_jax[tpu] or [cuda], better by its digest than by a tag.")
    tpu: str = option("", "What GKE calls the TPU, such as tpu-v5-lite-podslice, tpu-v5p-slice or tpu-v6e-slice.")
    topology: str = option("4x4", "Of a TPU slice.")
    chips: int = option(4, "Of a TPU machine.", 1)
    slices: int = option(1, "TPU slices that train together.", 1)
    gpu: str = option("", "Or what GKE calls the GPU, such as nvidia-h100-80gb.")
    gpus: int = option(8, "Of a GPU machine.", 1)
    nodes: int = option(1, "GPU machines.", 1)
    claim: str = option("", "A persistent volume claim for /runs: a bucket, a file store.")
    copy: tuple[str, ...] = option((), "A file to lie beside the config, such as a module of yours; may be repeated.")
    python: str = option("python3", "The image's python.")
    namespace: str = option("default", "Of the cluster.")
    restarts: int = option(20, "Times that all processes start anew when one is lost.", 0)

    def __post_init__(self) -> None:
        self.check()
        self._kubectl = Tool("kubectl", self.dry_run)

    def submit(self) -> None:
        """Make what is not there and leave what is as it should be: kubectl apply."""
        self._tell("apply", "--filename=-", stdin=yaml.dump_all(self.manifests(), Dumper=_Dumper, sort_keys=False, width=130))

    def state(self) -> None:
        """The JobSet and its pods."""
        self._tell("get", f"jobset/{self.name}", follow=True)
        self._tell("get", "pods", f"--selector=jobset.sigs.k8s.io/jobset-name={self.name}", "--output=wide", follow=True)

    def log(self) -> None:
        """What all processes print, each line with its pod's name, as it comes."""
        pods = f"--selector=jobset.sigs.k8s.io/jobset-name={self.name}"
        self._tell("logs", pods, "--prefix", "--follow", f"--max-log-requests={self.hardware().pods * self.slices}", follow=True)

    def stop(self) -> None:
        """Delete the run's objects; what is on the claim stays, and the same `submit` goes on."""
        self._tell("delete", "--ignore-not-found", f"jobset/{self.name}", f"configmap/{self.name}")

    def hardware(self) -> Hardware:
        """Raises UserError where it is not one of the two."""
        if bool(self.tpu) == bool(self.gpu):
            raise UserError("say what to train on: --tpu=tpu-v5-lite-podslice with --topology, or --gpu=nvidia-h100-80gb with --nodes")
        if self.gpu:
            return Hardware({"cloud.google.com/gke-accelerator": self.gpu}, {"nvidia.com/gpu": self.gpus}, self.nodes)
        if not re.fullmatch(r"\d+x\d+(x\d+)?", self.topology):
            raise UserError(f"--topology={self.topology} is not of the form 4x4 or 2x2x4")
        total = math.prod(map(int, self.topology.split("x")))
        if total % self.chips and total > self.chips:
            raise UserError(f"a topology of {total} chips is not made of machines with --chips={self.chips}")
        chips = min(total, self.chips)
        labels = {"cloud.google.com/gke-tpu-accelerator": self.tpu, "cloud.google.com/gke-tpu-topology": self.topology}
        return Hardware(labels, {"google.com/tpu": chips}, total // chips, self.slices, one_pool_each=True)

    def manifests(self) -> list[Manifest]:
        """Everything the run needs in the cluster, in the order in which it is made."""
        hardware = self.hardware()
        file, colon, variant = self.config.partition(":")
        files = [Path(path) for path in (file, *self.copy)]
        for path in files:
            if not path.is_file():
                raise UserError(f"there is no file {str(path)!r}: see --config and --copy")
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", path.name):
                raise UserError(f"a file that travels to a cluster must have a name of letters, digits, dots and dashes, not {path.name!r}")
        if not self.image:
            raise UserError("say which container image with --image=REGION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:DIGEST")
        command = self.train(self.python, f"{FILES}/{files[0].name}{colon}{variant}", self.run_dir or f"{RUNS}/{self.name}")
        account = self.name if self.gpu else ""
        spec = pod(self.name, self.image, command, self.references(), account, self.claim, hardware)
        permitted = permission(account) if account else []
        return [config_map(self.name, files), *permitted, job_set(self.name, spec, hardware, self.restarts)]

    def _tell(self, *arguments: str, stdin: str = "", follow: bool = False) -> None:
        self._kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin, follow=follow)

"""What Kubernetes is told: a JobSet, the files it reads, and the permission that jax needs to find its processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
FILES, RUNS = "/agentrl", "/runs"  # where a pod finds the config, and what outlives it
GRACE = 120  # seconds that a run gets to save itself when its pod must go


@dataclass(frozen=True)
class Hardware:
    """What a pod sits on: a node's labels, what it takes of it, and how many pods make a slice."""

    labels: dict[str, str]
    takes: dict[str, int]
    pods: int
    slices: int = 1
    one_pool_each: bool = False  # a slice of a TPU is one node pool


def literal(text: str) -> str:
    """Text that Kubernetes hands on as it is: it would put the value of A for $(A)."""
    return text.replace("$", "$$")


def config_map(name: str, files: Sequence[Path]) -> Manifest:
    """The files as data of the cluster."""
    data = {file.name: file.read_text(encoding="utf-8") for file in files}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def permission(name: str) -> list[Manifest]:
    """A service account that may read pods, jobs and services: jax asks for them where no TPU tells who is who."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
    ]
    metadata = {"metadata": {"name": name}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", **metadata},
        {"apiVersion": f"{group}/v1", "kind": "Role", **metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1", "kind": "RoleBinding", **metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]  # fmt: skip


def pod(name: str, image: str, command: Sequence[str], secrets: dict[str, str], account: str, claim: str, hardware: Hardware) -> Manifest:
    """One process of the run."""
    env = [{"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}} for key, secret in secrets.items()]
    volumes: list[Manifest] = [{"name": "files", "configMap": {"name": name}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "files", "mountPath": FILES}, {"name": "memory", "mountPath": "/dev/shm"}]
    if claim:
        volumes.append({"name": "runs", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "runs", "mountPath": RUNS})
    container = {
        "name": "train", "image": image, "command": [literal(word) for word in command], "workingDir": FILES, "env": env,
        "resources": {"limits": hardware.takes}, "volumeMounts": mounts,
    }  # fmt: skip
    return {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE, "nodeSelector": hardware.labels,
        **({"serviceAccountName": account} if account else {}), "containers": [container], "volumes": volumes,
    }  # fmt: skip


def job_set(name: str, spec: Manifest, hardware: Hardware, restarts: int) -> Manifest:
    """All processes start together, and together again when one is lost."""
    job = {
        "parallelism": hardware.pods, "completions": hardware.pods, "completionMode": "Indexed", "backoffLimit": 0,
        "template": {"spec": spec},
    }  # fmt: skip
    pools = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, **(pools if hardware.one_pool_each else {})},
        "spec": {
            "failurePolicy": {"maxRestarts": restarts}, "network": {"enableDNSHostnames": True},
            "replicatedJobs": [{"name": "slice", "replicas": hardware.slices, "template": {"spec": job}}],
        },
    }  # fmt: skip

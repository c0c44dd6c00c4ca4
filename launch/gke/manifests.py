"""Kubernetes manifests: a JobSet, its files, and the permission jax needs to find processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
FILES, RUNS = "/agentrl", "/runs"  # the folder of the config in a pod, and the one that outlives it
# Neither TPUs nor GPUs need a capability (docs/pods.md).
SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
GRACE_SECONDS = 120  # seconds that a run has to checkpoint when its pod is stopped


@dataclass(frozen=True)
class Hardware:
    """The hardware of a pod: node labels, resource limits, and how many pods make a slice."""

    labels: dict[str, str]
    resource_limits: dict[str, int]
    pods: int
    slices: int = 1
    exclusive_node_pools: bool = False  # a slice of a TPU is one node pool


def escape_variables(text: str) -> str:
    """Escape text for Kubernetes, which replaces $(A) by the value of A."""
    return text.replace("$", "$$")


def config_map(name: str, files: Sequence[Path]) -> Manifest:
    """A ConfigMap with the text of the files."""
    data = {file.name: file.read_text(encoding="utf-8") for file in files}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def rbac_manifests(name: str) -> list[Manifest]:
    """A service account that may read pods, jobs and services: on GPUs jax finds its processes by
    them.
    """
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


def pod(
    name: str,
    image: str,
    command: Sequence[str],
    secrets: dict[str, str],
    account: str,
    claim: str,
    hardware: Hardware,
) -> Manifest:
    """One process of the run."""
    env = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for key, secret in secrets.items()
    ]
    volumes: list[Manifest] = [
        {"name": "files", "configMap": {"name": name}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": "files", "mountPath": FILES}, {"name": "memory", "mountPath": "/dev/shm"}]
    if claim:
        volumes.append({"name": "runs", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "runs", "mountPath": RUNS})
    container = {
        "name": "train",
        "image": image,
        "command": [escape_variables(word) for word in command],
        "workingDir": FILES,
        "env": env,
        "resources": {"limits": hardware.resource_limits},
        "securityContext": SECURITY,
        "volumeMounts": mounts,
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": hardware.labels,
        **({"serviceAccountName": account} if account else {}),
        "containers": [container],
        "volumes": volumes,
    }


def job_set(name: str, spec: Manifest, hardware: Hardware, restarts: int) -> Manifest:
    """All processes start together, and restart together when one is lost."""
    job = {
        "parallelism": hardware.pods,
        "completions": hardware.pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": spec},
    }
    pools = {
        "annotations": {
            "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
        }
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, **(pools if hardware.exclusive_node_pools else {})},
        "spec": {
            "failurePolicy": {"maxRestarts": restarts},
            "network": {"enableDNSHostnames": True},
            "replicatedJobs": [
                {"name": "slice", "replicas": hardware.slices, "template": {"spec": job}}
            ],
        },
    }

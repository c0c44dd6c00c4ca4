"""agentrl-gke: the manifests, as Kubernetes interprets them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from support.launching import TOKEN, FakeCloud, assert_golden, assert_shellcheck_passes, words

from agentrl_jax.errors import UserError
from agentrl_jax.launch.gke.run import GkeRun

TPU: dict[str, Any] = {"tpu": "tpu-v5-lite-podslice", "image": "docker.io/me/agentrl@sha256:1"}
GPU: dict[str, Any] = {"gpu": "nvidia-h100-80gb", "image": "docker.io/me/agentrl@sha256:1"}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text('"""An experiment: it\'s $(mine)."""\n\n\ndef get_config():\n    return ...\n')
    return str(path)


def expanded(text: str) -> str:
    """A word of a command after Kubernetes has expanded it without variables: $$ is a dollar, $(A)
    stays.
    """
    return re.sub(
        r"\$(\$|\([^)]*\))", lambda match: "$" if match[1] == "$" else f"{{{match[1]}}}", text
    )


def container(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    spec = manifests[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    return only


DRY: dict[str, dict[str, Any]] = {
    "gke_tpu.sh": {**TPU, "slices": 2, "claim": "runs", "arguments": ("--config.seed=1",)},
    "gke_gpu.sh": {
        **GPU,
        "nodes": 2,
        "secret": ("HF_TOKEN=hub",),
        "arguments": ("--config.name=it's $(mine)",),
    },
}


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_prints_the_manifests(config: str, capsys: pytest.CaptureFixture[str], name: str):
    GkeRun("maze", f"{config}:smoke", dry_run=True, **DRY[name]).submit()
    printed = capsys.readouterr().out
    assert_golden(name, printed)
    assert_shellcheck_passes(printed)


@pytest.mark.parametrize("name", DRY)
def test_kubectl_gets_what_the_dry_run_prints(
    cloud: FakeCloud, config: str, capsys: pytest.CaptureFixture[str], name: str
):
    for dry_run in (True, False):
        GkeRun("maze", config, dry_run=dry_run, namespace="rl", **DRY[name]).submit()
    subprocess.run(["bash"], input=capsys.readouterr().out, text=True, check=True)
    first, second = cloud.calls("kubectl")
    assert first == second and first["arguments"] == ["--namespace=rl", "apply", "--filename=-"]
    manifests = list(yaml.safe_load_all(first["stdin"]))
    assert manifests == GkeRun("maze", config, namespace="rl", **DRY[name]).manifests()
    assert manifests[0]["data"] == {"mine.py": Path(config).read_text()}


@pytest.mark.parametrize(
    ("topology", "chips", "pods", "each"),
    [("4x4", 4, 4, 4), ("2x2", 4, 1, 4), ("1x1", 4, 1, 1), ("2x2x4", 4, 4, 4), ("2x4", 8, 1, 8)],
)
def test_a_slice_has_a_pod_for_each_machine(
    config: str, topology: str, chips: int, pods: int, each: int
):
    manifests = GkeRun("maze", config, topology=topology, chips=chips, **TPU).manifests()
    job = manifests[-1]["spec"]["replicatedJobs"][0]
    assert (
        job["replicas"],
        job["template"]["spec"]["parallelism"],
        job["template"]["spec"]["completions"],
    ) == (1, pods, pods)
    assert container(manifests)["resources"] == {"limits": {"google.com/tpu": each}}


def test_processes_on_gpus_may_query_the_cluster_for_their_index(config: str):
    manifests = GkeRun("maze", config, nodes=3, **GPU).manifests()
    assert [manifest["kind"] for manifest in manifests] == [
        "ConfigMap",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "JobSet",
    ]
    job = manifests[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]
    # jax counts the processes by a job's parallelism and numbers them by its index.
    assert (
        job["parallelism"],
        job["completionMode"],
        job["template"]["spec"]["serviceAccountName"],
    ) == (3, "Indexed", "maze")
    assert {(rule["resources"][0], *rule["verbs"]) for rule in manifests[2]["rules"]} == {
        ("pods", "get", "list"),
        ("jobs", "get", "list"),
    }


@pytest.mark.parametrize("name", DRY)
def test_a_container_has_no_capabilities(config: str, name: str):
    security = container(GkeRun("maze", config, **DRY[name]).manifests())["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_a_lost_process_restarts_all(config: str):
    spec = GkeRun("maze", config, restarts=7, **TPU).manifests()[-1]["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    assert spec["failurePolicy"] == {"maxRestarts": 7} and job["backoffLimit"] == 0
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] == 120


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(argument=words, value=words, image=words.filter(bool), run_dir=words.filter(bool))
def test_odd_strings_arrive_unchanged(
    config: str, argument: str, value: str, image: str, run_dir: str
):
    run = GkeRun(
        "maze",
        config,
        run_dir,
        (f"ODD={value}",),
        arguments=(argument, "last"),
        image=image,
        tpu="t",
    )
    with pytest.MonkeyPatch.context() as patch:
        commands: list[str] = []
        patch.setattr(run, "_kubectl", lambda *arguments, stdin, follow: commands.append(stdin))
        run.submit()
    only_container = container(list(yaml.safe_load_all(commands[0])))
    where = ["--config=/agentrl/mine.py", f"--run_dir={run_dir}"]
    expected = [
        "env",
        f"ODD={value}",
        "python3",
        "-m",
        "agentrl_jax.launch.train",
        *where,
        argument,
        "last",
    ]
    assert [expanded(word) for word in only_container["command"]] == expected and only_container[
        "image"
    ] == image


def test_secrets_are_references(
    cloud: FakeCloud,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for dry_run in (True, False):
        run = GkeRun("maze", config, dry_run=dry_run, secret=("HF_TOKEN=hub",), **TPU)
        run.submit()
        with pytest.raises(UserError, match=r"and not its value|name the variable with --secret"):
            GkeRun("maze", config, dry_run=dry_run, secret=(f"HF_TOKEN={TOKEN}",), **TPU).submit()
    assert container(run.manifests())["env"] == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}}}
    ]
    assert TOKEN not in cloud.stored_text() and TOKEN not in "".join(capfd.readouterr())


def test_a_run_can_be_listed_followed_and_deleted(cloud: FakeCloud, config: str):
    run = GkeRun("maze", config, **TPU)
    run.state()
    run.log()
    run.stop()
    commands = [" ".join(arguments) for arguments in cloud.call_arguments("kubectl")]
    assert commands == [
        "--namespace=default get jobset/maze",
        "--namespace=default get pods --selector=jobset.sigs.k8s.io/jobset-name=maze --output=wide",
        "--namespace=default logs --selector=jobset.sigs.k8s.io/jobset-name=maze --prefix "
        "--follow --max-log-requests=4",
        "--namespace=default delete --ignore-not-found jobset/maze configmap/maze",
    ]


def test_an_error_of_kubernetes_is_passed_on(cloud: FakeCloud, config: str):
    cloud.set_failures(
        "kubectl", 'error: no matches for kind "JobSet" in version "jobset.x-k8s.io/v1alpha2"'
    )
    with pytest.raises(
        UserError, match='kubectl ended with exit code 1: error: no matches for kind "JobSet"'
    ):
        GkeRun("maze", config, **TPU).submit()


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({}, "give the hardware: --tpu="),
        ({**TPU, "gpu": "nvidia-l4"}, "give the hardware: --tpu="),
        ({"tpu": "t"}, "give the container image"),
        ({**TPU, "topology": "16"}, "--topology=16 is not of the form"),
        (
            {**TPU, "topology": "3x3"},
            "a topology of 9 chips is not made of machines with --chips=4",
        ),
        ({**TPU, "config": "/nowhere.py"}, "there is no file '/nowhere.py'"),
        ({**TPU, "name": "a_b"}, "--name=a_b must be"),
    ],
)
def test_invalid_settings_are_refused(config: str, fields: dict[str, Any], match: str):
    with pytest.raises(UserError, match=match):
        GkeRun(**{"name": "maze", "config": config, "dry_run": True, **fields}).submit()


def test_a_file_name_that_a_config_map_cannot_hold_is_refused(tmp_path: Path, config: str):
    odd = tmp_path / "a b.py"
    odd.touch()
    with pytest.raises(UserError, match="must have a name of letters"):
        GkeRun("maze", config, copy=(str(odd),), **TPU).submit()

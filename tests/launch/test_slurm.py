"""agentrl-slurm: the job script that sbatch receives, run for real with an srun that logs its
calls.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.launching import ROOT, TOKEN, FakeCloud, assert_golden, assert_shellcheck_passes, words

from agentrl_jax.errors import UserError
from agentrl_jax.launch.slurm.job import SlurmRun

CONFIG = str(ROOT / "configs/wordle_grpo.py")


def run_job(script: str, **variables: str) -> int:
    """Run the script as Slurm would on the first node."""
    environment = {**os.environ, "SLURM_JOB_ID": "42", **variables}
    return subprocess.run(["bash"], input=script, text=True, env=environment).returncode


DRY: dict[str, dict[str, Any]] = {
    "slurm_node.sh": {
        "nodes": 4,
        "time": "24:00:00",
        "partition": "gpu",
        "secret": ("WANDB_API_KEY",),
        "cpus": 16,
    },
    "slurm_gpu.sh": {
        "process_per": "gpu",
        "env": ("XLA_FLAGS=--a --b",),
        "arguments": ("--config.name=it's $(mine)",),
    },
}


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_prints_the_job(capsys: pytest.CaptureFixture[str], name: str):
    SlurmRun("maze", f"{CONFIG}:smoke", dry_run=True, **DRY[name]).submit()
    printed = capsys.readouterr().out
    assert_golden(name, printed)
    assert_shellcheck_passes(printed)
    assert_shellcheck_passes(SlurmRun("maze", CONFIG, **DRY[name]).script())


def test_sbatch_gets_what_the_dry_run_prints(cloud: FakeCloud, capsys: pytest.CaptureFixture[str]):
    for dry_run in (True, False):
        SlurmRun(
            "maze", CONFIG, dry_run=dry_run, sbatch=("--constraint=a b",), arguments=("a\nb",)
        ).submit()
    subprocess.run(["bash"], input=capsys.readouterr().out, text=True, check=True)
    first, second = cloud.calls("sbatch")
    assert first == second and "--constraint=a b" in first["arguments"]


@pytest.mark.parametrize(("per", "ids"), [("node", "0,1,2,3"), ("gpu", "")])
def test_with_one_process_per_node_it_uses_all_gpus_of_the_node(
    cloud: FakeCloud, per: str, ids: str
):
    script = SlurmRun("maze", CONFIG, gpus=4, process_per=per).script()
    completed = subprocess.run(
        ["bash"], input=script.replace("srun", "env || srun", 1), text=True, capture_output=True
    )
    assert (
        f"JAX_LOCAL_DEVICE_IDS={ids}\n" in completed.stdout
        if ids
        else "JAX_LOCAL_DEVICE_IDS" not in completed.stdout
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    argument=words,
    value=words,
    run_dir=words.filter(bool),
    config=words.filter(bool),
    python=words.filter(bool),
)
def test_odd_strings_arrive_unchanged(
    cloud: FakeCloud, argument: str, value: str, run_dir: str, config: str, python: str
):
    run = SlurmRun(
        "maze", config, run_dir, (f"ODD={value}",), python=python, arguments=(argument, "last")
    )
    assert run_job(run.script()) == 0
    where = [f"--config={Path(config).absolute()}", f"--run_dir={run_dir}"]
    expected = [
        "env",
        f"ODD={value}",
        python,
        "-m",
        "agentrl_jax.launch.train",
        *where,
        argument,
        "last",
    ]
    assert cloud.call_arguments("srun")[-1] == [
        "--export=ALL",
        "--kill-on-bad-exit=1",
        "--gpu-bind=none",
        *expected,
    ]


def test_only_a_job_that_ran_out_of_time_is_requeued(cloud: FakeCloud):
    script = SlurmRun("maze", CONFIG, requeues=2).script()
    for code, restarts, requeued in ((0, 0, 0), (1, 0, 0), (130, 0, 1), (130, 1, 1), (130, 2, 0)):
        before = len(cloud.calls("scontrol"))
        failing = script.replace("srun ", f"(exit {code}); srun ", 1).replace(
            "gpu-bind=none", "gpu-bind=none", 1
        )
        failing = failing.replace(f"(exit {code}); srun", f"bash -c 'exit {code}' srun")
        assert run_job(failing, SLURM_RESTART_COUNT=str(restarts)) == code
        assert len(cloud.calls("scontrol")) - before == requeued
    assert cloud.call_arguments("scontrol")[0] == ["requeue", "42"]


def test_secrets_are_passed_by_name_only(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("WANDB_API_KEY", TOKEN)
    for dry_run in (True, False):
        SlurmRun("maze", CONFIG, secret=("WANDB_API_KEY",), dry_run=dry_run).submit()
        with pytest.raises(UserError, match="name the variable with --secret") as caught:
            SlurmRun("maze", CONFIG, arguments=(f"--key={TOKEN}",), dry_run=dry_run).submit()
        assert TOKEN not in str(caught.value)
    (call,) = cloud.calls("sbatch")
    assert "--export=HOME,PATH,WANDB_API_KEY" in call["arguments"]
    assert TOKEN not in cloud.stored_text() and TOKEN not in "".join(capfd.readouterr())


def test_an_error_of_slurm_is_passed_on(cloud: FakeCloud):
    cloud.set_failures("sbatch", "sbatch: error: invalid partition specified: gpu")
    with pytest.raises(
        UserError, match="sbatch ended with exit code 1: sbatch: error: invalid partition specified"
    ):
        SlurmRun("maze", CONFIG, partition="gpu").submit()


def test_a_job_is_cancelled_by_its_number(cloud: FakeCloud):
    SlurmRun("maze", job=42).stop()
    assert cloud.call_arguments("scancel") == [["42"]]
    with pytest.raises(UserError, match="give the job"):
        SlurmRun("maze").stop()


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"process_per": "core"}, "must be node or gpu, not 'core'"),
        ({"secret": ("WANDB_API_KEY=abc",)}, "--secret is the name of a variable"),
        ({"sbatch": ("other.sh",)}, "--sbatch is an option of sbatch"),
        ({"config": ""}, "give a config"),
        ({"env": ("a b=c",)}, "not of the form NAME=VALUE"),
        ({"arguments": ("\0",)}, "NUL"),
    ],
)
def test_invalid_settings_are_refused(fields: dict[str, Any], match: str):
    with pytest.raises(UserError, match=match):
        SlurmRun(**{"name": "maze", "config": CONFIG, "dry_run": True, **fields}).submit()

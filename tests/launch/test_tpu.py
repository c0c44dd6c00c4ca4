"""agentrl-tpu with a fake gcloud that acts in folders: creating, reusing, failing and preempted TPU
machines.
"""

import os
import shlex
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.launching import ROOT, TOKEN, FakeCloud, assert_golden, assert_shellcheck_passes, words

from agentrl_jax.errors import UserError
from agentrl_jax.launch.tpu.nodes import Nodes
from agentrl_jax.launch.tpu.run import WORKER_SCRIPT, TpuRun

RUN_UNTIL_INTERRUPT = "trap 'echo saved; exit 130' INT; echo begun; while true; do sleep 0.05; done"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "agentrl_jax-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


@pytest.fixture
def make(wheel: Path, tmp_path: Path) -> Any:
    config = tmp_path / "mine.py"
    config.write_text("def get_config(): ...\n")

    def make(**fields: Any) -> TpuRun:
        variables = {
            "zone": "us-east5-b",
            "wheel": str(wheel),
            "config": f"{config}:smoke",
            "poll_interval": 0.01,
            "ready_timeout": 5.0,
            "stop_grace": 5,
        }
        return TpuRun("maze", **(variables | fields))

    return make


def workers(cloud: FakeCloud, name: str = "maze") -> list[Path]:
    return sorted((cloud.folder / "workers").glob(f"{name}-w-*"))


def verbs(cloud: FakeCloud) -> list[str]:
    """The verb of each gcloud command that was run on this machine."""
    return [call["arguments"][3] for call in cloud.calls("gcloud") if not call["host"]]


def trained(cloud: FakeCloud) -> list[tuple[str, list[str]]]:
    """The worker and the arguments of each training run that was started."""
    return [
        (c["host"], c["arguments"])
        for c in cloud.calls("python3")
        if "agentrl_jax.launch.train" in c["arguments"]
    ]


def wait_until(true: Any) -> None:
    until = time.monotonic() + 200
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    assert true()


def test_a_machine_is_created_once_and_reused(cloud: FakeCloud, make: Any, wheel: Path):
    make().up()
    assert verbs(cloud) == ["describe", "create", "describe", "ssh", "scp", "ssh"]
    installed = [
        call["arguments"] for call in cloud.calls("python3") if "install" in call["arguments"]
    ]
    assert len(installed) == 2 == len(workers(cloud)) and all(
        f"./{wheel.name}[tpu,report]" in arguments for arguments in installed
    )
    make().up()  # the same wheel is already there
    assert verbs(cloud)[6:] == ["describe", "ssh", "scp", "ssh"]
    assert len([call for call in cloud.calls("python3") if "install" in call["arguments"]]) == 2


def test_a_worker_refuses_a_wheel_other_than_the_pinned_one_and_is_named(
    cloud: FakeCloud, make: Any, wheel: Path
):
    make().up()
    (workers(cloud)[1] / "agentrl/maze" / wheel.name).write_text("another")
    tell = "bash agentrl/maze/worker.sh install {} {} 3.12".format(wheel.name, "0" * 64)
    for home in workers(cloud):
        done = subprocess.run(
            ["bash", "-c", tell],
            cwd=home,
            env={**os.environ, "HOST": home.name},
            capture_output=True,
            text=True,
        )
        assert (
            done.returncode == 1
            and f"agentrl: {home.name} failed to install (exit code 1)" in done.stdout
        )


def test_an_old_python_is_not_used(cloud: FakeCloud, make: Any):
    (cloud.folder / "old python").touch()
    make().up()
    commands = [
        call["arguments"][:4] for call in cloud.calls("python3") if call["host"] == "maze-w-0"
    ]
    assert [arguments[:3] for arguments in commands[1:]] == [
        ["-m", "pip", "install"],
        ["-m", "uv", "venv"],
        ["-m", "uv", "pip"],
    ]


def test_a_run_finishes_on_all_workers(
    cloud: FakeCloud, make: Any, capsys: pytest.CaptureFixture[str]
):
    cloud.set_training_script('echo "$HOST: step 1"; sleep 0.2')
    make(
        arguments=("--config.seed=1", "--config.x=$(touch here) 'a'\n-b"), env=("FLAGS=a b",)
    ).run()
    arguments = ["-m", "agentrl_jax.launch.train", "--config=mine.py:smoke", "--run_dir=runs/maze"]
    arguments += ["--config.seed=1", "--config.x=$(touch here) 'a'\n-b"]
    assert sorted(trained(cloud)) == [("maze-w-0", arguments), ("maze-w-1", arguments)]
    assert "maze is finished on 2 workers" in capsys.readouterr().err
    assert [(home / "agentrl/maze/train.log").read_text() for home in workers(cloud)] == [
        "maze-w-0: step 1\n",
        "maze-w-1: step 1\n",
    ]
    assert not list(cloud.folder.rglob("here"))


def test_a_failing_worker_is_named_and_the_others_are_stopped(
    cloud: FakeCloud, make: Any, capsys: pytest.CaptureFixture[str]
):
    cloud.set_training_script(
        f'if [ "$HOST" = maze-w-1 ]; then echo "out of memory"; exit 3; fi; {RUN_UNTIL_INTERRUPT}'
    )
    with pytest.raises(
        UserError, match="worker maze-w-1 failed with exit code 3; the others were stopped"
    ):
        make().run()
    assert "maze-w-1: out of memory" in capsys.readouterr().err
    assert "saved" in (workers(cloud)[0] / "agentrl/maze/train.log").read_text()


def test_a_worker_that_cannot_install_is_named(cloud: FakeCloud, make: Any):
    cloud.set_failures("python3", *[""] * 5, "ERROR: no space left on device")
    with pytest.raises(
        UserError,
        match=r"worker maze-w-1 failed\. gcloud ended with exit code 1: ERROR: no space left",
    ):
        make().run()


@pytest.mark.slow
def test_a_run_is_started_once_found_again_stopped_and_resumed(
    cloud: FakeCloud, make: Any, capsys: pytest.CaptureFixture[str]
):
    cloud.set_training_script(RUN_UNTIL_INTERRUPT)
    run = make()
    run.up()
    run.start()
    wait_until(lambda: len(trained(cloud)) == 2)
    run.start()
    run.state()
    errors = capsys.readouterr().err
    assert (
        "maze is running already" in errors
        and "maze-w-0: running" in errors
        and "maze: READY" in errors
    )
    wait_until(
        lambda: all(
            "begun" in (home / "agentrl/maze/train.log").read_text() for home in workers(cloud)
        )
    )
    run.stop()
    run.state()
    assert "maze-w-1: idle" in capsys.readouterr().err
    assert all("saved" in (home / "agentrl/maze/train.log").read_text() for home in workers(cloud))
    run.start()
    wait_until(lambda: len(trained(cloud)) == 4)
    run.stop()
    run.down()
    assert workers(cloud) == []


def test_a_run_on_some_workers_only_is_not_extended_to_the_others(cloud: FakeCloud, make: Any):
    cloud.set_training_script(f'if [ "$HOST" = maze-w-1 ]; then exit 0; fi; {RUN_UNTIL_INTERRUPT}')
    run = make()
    run.up()
    run.start()
    wait_until(lambda: (workers(cloud)[1] / "agentrl/maze/train.exit").exists())
    with pytest.raises(UserError, match="running on some workers only"):
        run.start()
    run.stop()


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"queued": True, "slices": 2, "spot": True}])
def test_a_preempted_machine_is_recreated_and_the_run_resumes(
    cloud: FakeCloud, make: Any, fields: dict[str, Any]
):
    cloud.set_training_script('if [ -e "$CLOUD/second" ]; then exit 0; fi; ' + RUN_UNTIL_INTERRUPT)
    count = 2 * fields.get("slices", 1)
    nodes = [f"maze-{i}" for i in range(2)] if fields else ["maze"]

    def preempt() -> None:
        until = time.monotonic() + 200
        while len(trained(cloud)) < count and time.monotonic() < until:
            time.sleep(0.02)
        (cloud.folder / "second").touch()
        (cloud.folder / "machines/maze").write_text("SUSPENDED" if fields else "PREEMPTED")
        gone = [
            home.rename(cloud.folder / home.name) for node in nodes for home in workers(cloud, node)
        ]
        for home in gone:
            subprocess.run(
                ["bash", "agentrl/maze/worker.sh", "stop", "5"],
                cwd=home,
                env={**os.environ, "HOST": home.name},
                check=True,
            )

    thread = threading.Thread(target=preempt)
    thread.start()
    make(**fields).run()
    thread.join()
    assert (
        verbs(cloud).count("create") == 2
        and verbs(cloud).count("delete") == 1
        and len(trained(cloud)) == 2 * count
    )


def test_a_machine_that_is_always_preempted_ends_the_run(cloud: FakeCloud, make: Any):
    original = Nodes.run_on_workers

    def taken(self: Nodes, *argv: str) -> str:
        (cloud.folder / "machines/maze").write_text("PREEMPTED")
        for home in workers(cloud):
            home.rename(cloud.folder / f"{home.name}-{time.monotonic_ns()}")
        return original(self, *argv)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Nodes, "run_on_workers", taken)
        with pytest.raises(UserError, match="maze was preempted 3 times: the same command resumes"):
            make(restarts=2).run()


def test_a_lost_connection_is_retried(cloud: FakeCloud, make: Any):
    cloud.set_training_script("sleep 0.5")
    lost = "ssh: connect to host 10.0.0.1 port 22: Connection timed out"
    cloud.set_failures("gcloud", *[""] * 9, lost, "", lost)  # up and start make nine calls
    make().run()
    assert len(trained(cloud)) == 2


def test_full_zones_are_retried_and_other_errors_passed_on(cloud: FakeCloud, make: Any):
    full = "ERROR: There is no more capacity in the zone us-east5-b"
    cloud.set_failures("gcloud", "", full, "", full)
    make().up()
    assert verbs(cloud)[:6] == ["describe", "create"] * 3 and len(workers(cloud)) == 2
    (cloud.folder / "machines/maze").unlink()
    cloud.set_failures(
        "gcloud", "", "ERROR: PERMISSION_DENIED: Permission 'tpu.nodes.create' denied"
    )
    with pytest.raises(
        UserError,
        match=r"gcloud ended with exit code 1: ERROR: PERMISSION_DENIED: Permission "
        r"'tpu\.nodes\.create'",
    ):
        make().up()


def test_a_machine_that_is_never_ready_or_is_stopped_is_reported(cloud: FakeCloud, make: Any):
    (cloud.folder / "machines/maze").write_text("CREATING")
    with pytest.raises(UserError, match=r"maze is still CREATING after 0\.05 s"):
        make(ready_timeout=0.05).up()
    (cloud.folder / "machines/maze").write_text("STOPPED")
    with pytest.raises(UserError, match="maze is STOPPED: start or delete it"):
        make().up()


def test_secrets_are_read_on_the_worker_and_stored_nowhere(
    cloud: FakeCloud, make: Any, capfd: pytest.CaptureFixture[str]
):
    (cloud.folder / "secrets/wandb").write_text(TOKEN)
    cloud.set_training_script('if [ "${#WANDB_API_KEY}" = 28 ]; then echo "there it is"; fi')
    for dry_run in (True, False):
        make(secret=("WANDB_API_KEY=wandb",), dry_run=dry_run).run()
    assert len(TOKEN) == 28
    assert "there it is" in (workers(cloud)[1] / "agentrl/maze/train.log").read_text()
    assert TOKEN not in cloud.stored_text() and TOKEN not in "".join(capfd.readouterr())


def test_a_secret_that_cannot_be_read_fails_with_the_workers_name(cloud: FakeCloud, make: Any):
    with pytest.raises(UserError, match="worker maze-w-0, maze-w-1 failed"):
        make(secret=("WANDB_API_KEY=nowhere",)).run()


def test_the_log_is_followed_until_ctrl_c(cloud: FakeCloud, make: Any):
    cloud.set_training_script("for i in 1 2 3; do echo step $i; done")
    make().run()
    command = [
        cloud.path.split(":")[0] + "/gcloud",
        "compute",
        "tpus",
        "tpu-vm",
        "ssh",
        "maze",
        "--worker=1",
    ]
    command.append("--command=bash agentrl/maze/worker.sh log 2")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None and [process.stdout.readline() for _ in range(2)] == [
        "step 2\n",
        "step 3\n",
    ]
    os.killpg(process.pid, 9)
    process.communicate()


DRY = {
    "tpu_run.sh": {"arguments": ("--config.seed=1", "--config.name=it's $(mine)")},
    "tpu_queued.sh": {
        "queued": True,
        "slices": 2,
        "spot": True,
        "project": "p",
        "service_account": "a@b",
        "secret": ("HF_TOKEN=hf",),
    },
}


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_prints_the_commands(
    make: Any, wheel: Path, capsys: pytest.CaptureFixture[str], name: str
):
    make(dry_run=True, env=("XLA_FLAGS=--a --b",), **DRY[name]).run()
    printed = capsys.readouterr().out.replace(str(wheel.parent), "/here")
    assert_golden(name, printed)
    assert_shellcheck_passes(printed)


def test_shellcheck_accepts_the_workers_script():
    assert_shellcheck_passes(WORKER_SCRIPT.read_text())


def test_a_run_executes_the_commands_that_a_dry_run_prints(
    cloud: FakeCloud, make: Any, capsys: pytest.CaptureFixture[str]
):
    make(dry_run=True, arguments=("--x=$(id) 'y'",)).run()
    printed = [shlex.split(line)[1:] for line in capsys.readouterr().out.splitlines()]
    make(arguments=("--x=$(id) 'y'",)).run()
    commands = [
        arguments for arguments in cloud.call_arguments("gcloud") if arguments[0] == "compute"
    ]
    del commands[2]  # the query whether the machine is ready
    assert commands[: len(printed)] == printed


@pytest.mark.slow
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(argument=words, value=words, run_dir=words)
def test_odd_strings_arrive_unchanged(
    cloud: FakeCloud, make: Any, argument: str, value: str, run_dir: str
):
    run = make(arguments=(argument, "last"), env=(f"ODD={value}",), run_dir=run_dir)
    run.up()
    cloud.set_training_script('printf "%s" "$ODD" >"$CLOUD/odd-$HOST"')
    run.start()
    wait_until(lambda: all((home / "agentrl/maze/train.exit").exists() for home in workers(cloud)))
    where = [f"--run_dir={run_dir or 'runs/maze'}"]
    assert trained(cloud)[-1][1][2:] == ["--config=mine.py:smoke", *where, argument, "last"]
    assert (cloud.folder / "odd-maze-w-1").read_bytes().decode() == value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["fly"], "give an action: up|start|state|log|stop|down|run, not 'fly'"),
        (["up", "--name=-rf"], "--name=-rf must be 1 to 40 lower-case letters"),
        (["up", "--name=$(id)"], "--name=$(id) must be"),
        (["up", "--name=a"], "--zone=us-east5-b"),
        (["up", "--name=a", "--zone=z"], "there is no file ''"),
        (["up", "--name=a", "--zone=z", f"--wheel={__file__}"], "is no wheel of agentrl_jax"),
        (["start", "--name=a", "--zone=z", "--slices=2"], "add --queued"),
        (
            ["start", "--name=a", "--zone=z", "--env=HF_TOKEN=x"],
            "--env=HF_TOKEN=... would show a secret",
        ),
        (
            ["start", "--name=a", "--zone=z", "--secret=HF_TOKEN", f"--config={__file__}"],
            "must be VARIABLE=NAME",
        ),
        (
            [
                "start",
                "--name=a",
                "--zone=z",
                f"--secret=HF_TOKEN=hf_{'x' * 20}",
                f"--config={__file__}",
            ],
            "and not its value",
        ),
        (["start", "--name=a", "--zone=z", "stray"], "'stray' is no flag"),
    ],
)
def test_invalid_settings_are_reported_in_one_sentence(flags: list[str], words: str):
    done = subprocess.run(
        [sys.executable, "-m", "agentrl_jax.launch.tpu", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 2
        and done.stderr.startswith("error: ")
        and words in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.slow
def test_a_real_wheel_is_installed_into_a_real_environment(tmp_path: Path):
    wheel = tmp_path / "agentrl_jax-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("agentrl_jax/__init__.py", "print('here')")
        metadata = "Metadata-Version: 2.1\nName: agentrl_jax\nVersion: 0.1.0\nProvides-Extra: tpu\n"
        for name, text in (
            ("METADATA", metadata),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            file.writestr(f"agentrl_jax-0.1.0.dist-info/{name}", text)
    (tmp_path / "worker.sh").write_text(WORKER_SCRIPT.read_text())
    pinned = subprocess.run(
        ["sha256sum", wheel], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    subprocess.run(
        ["bash", "worker.sh", "install", wheel.name, pinned, "3.12"], cwd=tmp_path, check=True
    )
    errors = subprocess.run(
        [tmp_path / "venv/bin/python", "-I", "-c", "import agentrl_jax"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert errors.stdout == "here\n"

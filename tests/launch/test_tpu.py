"""agentrl-tpu against a gcloud that does what it is told, in folders: making, reusing, failing, preempted."""

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
from launching import ROOT, Cloud, assert_golden, assert_good_shell
from test_calls import TOKEN, words

from agentrl_jax.errors import UserError
from agentrl_jax.launch.tpu.nodes import Nodes
from agentrl_jax.launch.tpu.run import WORKER, TpuRun

STAY = "trap 'echo saved; exit 130' INT; echo begun; while true; do sleep 0.05; done"


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
        here = {"zone": "us-east5-b", "wheel": str(wheel), "config": f"{config}:smoke", "pause": 0.01, "patience": 5.0, "grace": 5}
        return TpuRun("maze", **(here | fields))

    return make


def workers(cloud: Cloud, name: str = "maze") -> list[Path]:
    return sorted((cloud.folder / "workers").glob(f"{name}-w-*"))


def verbs(cloud: Cloud) -> list[str]:
    """What gcloud was told from here, in a word each."""
    return [call["arguments"][3] for call in cloud.calls("gcloud") if not call["host"]]


def trained(cloud: Cloud) -> list[tuple[str, list[str]]]:
    """Who started a training run, with which arguments."""
    return [(c["host"], c["arguments"]) for c in cloud.calls("python3") if "agentrl_jax.launch.train" in c["arguments"]]


def wait_until(true: Any) -> None:
    until = time.monotonic() + 200
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    assert true()


def test_a_machine_is_made_once_and_used_again(cloud: Cloud, make: Any, wheel: Path):
    make().up()
    assert verbs(cloud) == ["describe", "create", "describe", "ssh", "scp", "ssh"]
    installed = [call["arguments"] for call in cloud.calls("python3") if "install" in call["arguments"]]
    assert len(installed) == 2 == len(workers(cloud)) and all(f"./{wheel.name}[tpu]" in arguments for arguments in installed)
    make().up()  # the same wheel is there already
    assert verbs(cloud)[6:] == ["describe", "ssh", "scp", "ssh"]
    assert len([call for call in cloud.calls("python3") if "install" in call["arguments"]]) == 2


def test_another_wheel_than_the_pinned_one_is_refused_by_the_worker_by_name(cloud: Cloud, make: Any, wheel: Path):
    make().up()
    (workers(cloud)[1] / "agentrl/maze" / wheel.name).write_text("another")
    tell = "bash agentrl/maze/worker.sh install {} {} 3.12".format(wheel.name, "0" * 64)
    for home in workers(cloud):
        done = subprocess.run(["bash", "-c", tell], cwd=home, env={**os.environ, "HOST": home.name}, capture_output=True, text=True)
        assert done.returncode == 1 and f"agentrl: {home.name} failed to install (exit code 1)" in done.stdout


def test_an_old_python_is_not_used(cloud: Cloud, make: Any):
    (cloud.folder / "old python").touch()
    make().up()
    told = [call["arguments"][:4] for call in cloud.calls("python3") if call["host"] == "maze-w-0"]
    assert [arguments[:3] for arguments in told[1:]] == [["-m", "pip", "install"], ["-m", "uv", "venv"], ["-m", "uv", "pip"]]


def test_a_run_goes_to_its_end_on_all_workers(cloud: Cloud, make: Any, capsys: pytest.CaptureFixture[str]):
    cloud.train('echo "$HOST: step 1"; sleep 0.2')
    make(arguments=("--config.seed=1", "--config.x=$(touch here) 'a'\n-b"), env=("FLAGS=a b",)).run()
    arguments = ["-m", "agentrl_jax.launch.train", "--config=mine.py:smoke", "--run_dir=runs/maze"]
    arguments += ["--config.seed=1", "--config.x=$(touch here) 'a'\n-b"]
    assert sorted(trained(cloud)) == [("maze-w-0", arguments), ("maze-w-1", arguments)]
    assert "maze is finished on 2 workers" in capsys.readouterr().err
    assert [(home / "agentrl/maze/train.log").read_text() for home in workers(cloud)] == ["maze-w-0: step 1\n", "maze-w-1: step 1\n"]
    assert not list(cloud.folder.rglob("here"))


def test_a_failing_worker_is_named_and_the_others_are_stopped(cloud: Cloud, make: Any, capsys: pytest.CaptureFixture[str]):
    cloud.train(f'if [ "$HOST" = maze-w-1 ]; then echo "out of memory"; exit 3; fi; {STAY}')
    with pytest.raises(UserError, match="worker maze-w-1 failed with exit code 3; the others were stopped"):
        make().run()
    assert "maze-w-1: out of memory" in capsys.readouterr().err
    assert "saved" in (workers(cloud)[0] / "agentrl/maze/train.log").read_text()


def test_a_worker_that_cannot_install_is_named(cloud: Cloud, make: Any):
    cloud.answer("python3", *[""] * 5, "ERROR: no space left on device")
    with pytest.raises(UserError, match=r"worker maze-w-1 failed\. gcloud ended with exit code 1: ERROR: no space left"):
        make().run()


@pytest.mark.slow
def test_a_run_is_started_once_found_again_stopped_and_gone_on_with(cloud: Cloud, make: Any, capsys: pytest.CaptureFixture[str]):
    cloud.train(STAY)
    run = make()
    run.up()
    run.start()
    wait_until(lambda: len(trained(cloud)) == 2)
    run.start()
    run.state()
    said = capsys.readouterr().err
    assert "maze is running already" in said and "maze-w-0: running" in said and "maze: READY" in said
    wait_until(lambda: all("begun" in (home / "agentrl/maze/train.log").read_text() for home in workers(cloud)))
    run.stop()
    run.state()
    assert "maze-w-1: idle" in capsys.readouterr().err
    assert all("saved" in (home / "agentrl/maze/train.log").read_text() for home in workers(cloud))
    run.start()
    wait_until(lambda: len(trained(cloud)) == 4)
    run.stop()
    run.down()
    assert workers(cloud) == []


def test_a_run_on_some_workers_only_is_not_added_to(cloud: Cloud, make: Any):
    cloud.train(f'if [ "$HOST" = maze-w-1 ]; then exit 0; fi; {STAY}')
    run = make()
    run.up()
    run.start()
    wait_until(lambda: (workers(cloud)[1] / "agentrl/maze/train.exit").exists())
    with pytest.raises(UserError, match="running on some workers only"):
        run.start()
    run.stop()


@pytest.mark.parametrize("fields", [{}, {"queued": True, "slices": 2, "spot": True}])
def test_a_preempted_machine_is_made_anew_and_the_run_goes_on(cloud: Cloud, make: Any, fields: dict[str, Any]):
    cloud.train('if [ -e "$CLOUD/second" ]; then exit 0; fi; ' + STAY)
    count = 2 * fields.get("slices", 1)
    nodes = [f"maze-{i}" for i in range(2)] if fields else ["maze"]

    def preempt() -> None:
        until = time.monotonic() + 200
        while len(trained(cloud)) < count and time.monotonic() < until:
            time.sleep(0.02)
        (cloud.folder / "second").touch()
        (cloud.folder / "machines/maze").write_text("SUSPENDED" if fields else "PREEMPTED")
        gone = [home.rename(cloud.folder / home.name) for node in nodes for home in workers(cloud, node)]
        for home in gone:
            subprocess.run(["bash", "agentrl/maze/worker.sh", "stop", "5"], cwd=home, env={**os.environ, "HOST": home.name}, check=True)

    thread = threading.Thread(target=preempt)
    thread.start()
    make(**fields).run()
    thread.join()
    assert verbs(cloud).count("create") == 2 and verbs(cloud).count("delete") == 1 and len(trained(cloud)) == 2 * count


def test_machines_that_are_always_taken_away_end_the_patience(cloud: Cloud, make: Any):
    original = Nodes.tell

    def taken(self: Nodes, *argv: str) -> str:
        (cloud.folder / "machines/maze").write_text("PREEMPTED")
        for home in workers(cloud):
            home.rename(cloud.folder / f"{home.name}-{time.monotonic_ns()}")
        return original(self, *argv)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Nodes, "tell", taken)
        with pytest.raises(UserError, match="maze was preempted 3 times: the same command goes on"):
            make(restarts=2).run()


def test_a_lost_connection_is_tried_again(cloud: Cloud, make: Any):
    cloud.train("sleep 0.5")
    lost = "ssh: connect to host 10.0.0.1 port 22: Connection timed out"
    cloud.answer("gcloud", *[""] * 9, lost, "", lost)  # up and start are nine calls
    make().run()
    assert len(trained(cloud)) == 2


def test_full_zones_are_waited_for_and_other_refusals_passed_on(cloud: Cloud, make: Any):
    full = "ERROR: There is no more capacity in the zone us-east5-b"
    cloud.answer("gcloud", "", full, "", full)
    make().up()
    assert verbs(cloud)[:6] == ["describe", "create"] * 3 and len(workers(cloud)) == 2
    (cloud.folder / "machines/maze").unlink()
    cloud.answer("gcloud", "", "ERROR: PERMISSION_DENIED: Permission 'tpu.nodes.create' denied")
    with pytest.raises(UserError, match=r"gcloud ended with exit code 1: ERROR: PERMISSION_DENIED: Permission 'tpu\.nodes\.create'"):
        make().up()


def test_a_machine_that_does_not_come_or_is_stopped_is_told(cloud: Cloud, make: Any):
    (cloud.folder / "machines/maze").write_text("CREATING")
    with pytest.raises(UserError, match=r"maze is still CREATING after 0\.05 s"):
        make(patience=0.05).up()
    (cloud.folder / "machines/maze").write_text("STOPPED")
    with pytest.raises(UserError, match="maze is STOPPED: start or delete it"):
        make().up()


def test_secrets_are_read_on_the_worker_and_seen_nowhere(cloud: Cloud, make: Any, capfd: pytest.CaptureFixture[str]):
    (cloud.folder / "secrets/wandb").write_text(TOKEN)
    cloud.train('if [ "${#WANDB_API_KEY}" = 28 ]; then echo "there it is"; fi')
    for dry_run in (True, False):
        make(secret=("WANDB_API_KEY=wandb",), dry_run=dry_run).run()
    assert len(TOKEN) == 28
    assert "there it is" in (workers(cloud)[1] / "agentrl/maze/train.log").read_text()
    assert TOKEN not in cloud.written() and TOKEN not in "".join(capfd.readouterr())


def test_a_secret_that_cannot_be_read_fails_by_the_workers_name(cloud: Cloud, make: Any):
    with pytest.raises(UserError, match="worker maze-w-0, maze-w-1 failed"):
        make(secret=("WANDB_API_KEY=nowhere",)).run()


def test_the_log_is_followed_until_ctrl_c(cloud: Cloud, make: Any):
    cloud.train("for i in 1 2 3; do echo step $i; done")
    make().run()
    command = [cloud.path.split(":")[0] + "/gcloud", "compute", "tpus", "tpu-vm", "ssh", "maze", "--worker=1"]
    command.append("--command=bash agentrl/maze/worker.sh log 2")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None and [process.stdout.readline() for _ in range(2)] == ["step 2\n", "step 3\n"]
    os.killpg(process.pid, 9)
    process.communicate()


DRY = {
    "tpu_run.sh": {"arguments": ("--config.seed=1", "--config.name=it's $(mine)")},
    "tpu_queued.sh": {"queued": True, "slices": 2, "spot": True, "project": "p", "service_account": "a@b", "secret": ("HF_TOKEN=hf",)},
}


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_prints_what_would_be_run(make: Any, wheel: Path, capsys: pytest.CaptureFixture[str], name: str):
    make(dry_run=True, env=("XLA_FLAGS=--a --b",), **DRY[name]).run()
    printed = capsys.readouterr().out.replace(str(wheel.parent), "/here")
    assert_golden(name, printed)
    assert_good_shell(printed)


def test_the_workers_script_is_good_shell():
    assert_good_shell(WORKER.read_text())


def test_what_a_dry_run_prints_is_what_a_run_does(cloud: Cloud, make: Any, capsys: pytest.CaptureFixture[str]):
    make(dry_run=True, arguments=("--x=$(id) 'y'",)).run()
    printed = [shlex.split(line)[1:] for line in capsys.readouterr().out.splitlines()]
    make(arguments=("--x=$(id) 'y'",)).run()
    told = [arguments for arguments in cloud.arguments("gcloud") if arguments[0] == "compute"]
    del told[2]  # whether it is ready now
    assert told[: len(printed)] == printed


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(argument=words, value=words, run_dir=words)
def test_odd_strings_arrive_as_they_are(cloud: Cloud, make: Any, argument: str, value: str, run_dir: str):
    run = make(arguments=(argument, "last"), env=(f"ODD={value}",), run_dir=run_dir)
    run.up()
    cloud.train('printf "%s" "$ODD" >"$CLOUD/odd-$HOST"')
    run.start()
    wait_until(lambda: all((home / "agentrl/maze/train.exit").exists() for home in workers(cloud)))
    where = [f"--run_dir={run_dir or 'runs/maze'}"]
    assert trained(cloud)[-1][1][2:] == ["--config=mine.py:smoke", *where, argument, "last"]
    assert (cloud.folder / "odd-maze-w-1").read_bytes().decode() == value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["fly"], "say what to do: up|start|state|log|stop|down|run, not 'fly'"),
        (["up", "--name=-rf"], "--name=-rf must be 1 to 40 lower-case letters"),
        (["up", "--name=$(id)"], "--name=$(id) must be"),
        (["up", "--name=a"], "--zone=us-east5-b"),
        (["up", "--name=a", "--zone=z"], "there is no file ''"),
        (["up", "--name=a", "--zone=z", f"--wheel={__file__}"], "is no wheel of agentrl_jax"),
        (["start", "--name=a", "--zone=z", "--slices=2"], "add --queued"),
        (["start", "--name=a", "--zone=z", "--env=HF_TOKEN=x"], "--env=HF_TOKEN=... would show a secret"),
        (["start", "--name=a", "--zone=z", "--secret=HF_TOKEN", f"--config={__file__}"], "must be VARIABLE=NAME"),
        (["start", "--name=a", "--zone=z", f"--secret=HF_TOKEN=hf_{'x' * 20}", f"--config={__file__}"], "and not its value"),
        (["start", "--name=a", "--zone=z", "stray"], "'stray' is no flag"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(flags: list[str], words: str):
    done = subprocess.run([sys.executable, "-m", "agentrl_jax.launch.tpu", *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and words in done.stderr and "Traceback" not in done.stderr


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
    (tmp_path / "worker.sh").write_text(WORKER.read_text())
    pinned = subprocess.run(["sha256sum", wheel], capture_output=True, text=True, check=True).stdout.split()[0]
    subprocess.run(["bash", "worker.sh", "install", wheel.name, pinned, "3.12"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "venv/bin/python", "-I", "-c", "import agentrl_jax"], capture_output=True, text=True, check=True)
    assert said.stdout == "here\n"

"""A living command's lock is never taken, on this machine or another; a dead one's always is."""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import letters_config

from agentrl_jax.errors import UserError
from agentrl_jax.storage import folder_lock
from agentrl_jax.storage.folder_lock import LOCK_FILE, LockOwner, exclusive_lock
from agentrl_jax.training import loop

HOLDER = """
import sys, time
from pathlib import Path
from agentrl_jax.storage.folder_lock import exclusive_lock

with exclusive_lock(Path(sys.argv[1]), "training"):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock of `tmp_path`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        yield process
        process.kill()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("HEARTBEAT", 0.05), ("STALE", 0.6), ("POLL", 0.05)):
        monkeypatch.setattr(folder_lock, f"{name}_SECONDS", seconds)


def no_flock(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOTSUP, "not supported")


def owner_of(folder: Path) -> LockOwner:
    return LockOwner(**json.loads((folder / LOCK_FILE).read_text()))


def write_owner(folder: Path, **changes: object) -> None:
    with exclusive_lock(folder, "training"):
        owner = owner_of(folder)
    (folder / LOCK_FILE).write_text(json.dumps({**dataclasses.asdict(owner), **changes}))


@pytest.mark.parametrize("has_flock", [True, False])
def test_the_lock_of_a_living_process_is_refused_and_that_of_a_killed_one_is_free(
    tmp_path: Path,
    holder: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    has_flock: bool,
):
    if not has_flock:
        monkeypatch.setattr(fcntl, "flock", no_flock)
    message = rf"another command is training in .*\(process {holder.pid} on \S+, for 0:00:0\d\)"
    with pytest.raises(UserError, match=message), exclusive_lock(tmp_path, "at work"):
        pass
    holder.kill()
    holder.wait()
    with exclusive_lock(tmp_path, "at work"):
        assert owner_of(tmp_path).pid == os.getpid()
    assert (tmp_path / LOCK_FILE).read_text() == ""


def test_a_process_with_the_id_of_a_dead_owner_does_not_keep_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fcntl, "flock", no_flock)
    write_owner(tmp_path, process_start="1")
    with exclusive_lock(tmp_path, "at work"):
        assert owner_of(tmp_path).activity == "at work"


@pytest.mark.usefixtures("quick")
def test_an_owner_on_another_machine_is_dead_once_it_gave_no_sign_of_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_owner(tmp_path, host="other")
    start = time.monotonic()
    with exclusive_lock(tmp_path, "at work"):
        assert time.monotonic() - start > 0.5 and owner_of(tmp_path).activity == "at work"
    assert "is locked by process" in capsys.readouterr().err


@contextlib.contextmanager
def touched(path: Path) -> Iterator[None]:
    """Its owner on another machine lives: its heartbeat is played here."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.1):
            os.utime(path)

    thread = threading.Thread(target=beat)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.usefixtures("quick")
def test_an_owner_on_another_machine_with_a_heartbeat_keeps_its_lock(tmp_path: Path):
    write_owner(tmp_path, host="other", pid=71)
    with (
        touched(tmp_path / LOCK_FILE),
        pytest.raises(UserError, match="process 71 on other"),
        exclusive_lock(tmp_path, "at work"),
    ):
        pass


@pytest.mark.usefixtures("quick")
def test_an_owner_gives_signs_of_life_and_notices_that_it_was_replaced(tmp_path: Path):
    path = tmp_path / LOCK_FILE
    with exclusive_lock(tmp_path, "at work") as lock:
        os.utime(path, (0, 0))
        while path.stat().st_mtime == 0:
            time.sleep(0.01)
        lock.check()
        other = {**json.loads(path.read_text()), "token": "other", "pid": 71}
        path.write_text(json.dumps(other))
        deadline = time.monotonic() + 10
        with pytest.raises(UserError, match=r"process 71 on .* took over"):
            while time.monotonic() < deadline:
                lock.check()
                time.sleep(0.01)
    assert json.loads(path.read_text()) == other  # it is not ours to release


def test_a_second_training_changes_nothing_not_even_with_fresh(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with exclusive_lock(tmp_path, "training"):
        for fresh in (False, True):
            with pytest.raises(UserError, match=rf"training in .* \(process {os.getpid()} on "):
                loop.train(letters_config.get_config(), tmp_path, fresh=fresh)
        assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK_FILE, "config.json"]


def test_a_training_that_fails_releases_its_lock(tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    for _ in range(2):
        with pytest.raises(UserError, match=r"config.json is damaged"):
            loop.train(letters_config.get_config(), tmp_path)
    with exclusive_lock(tmp_path, "at work"):
        pass

"""Snippets and sessions in confined processes: outputs, limits, state, and nothing that is left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.ladder import zygote_config
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import ReplayedSession
from agentrl_jax.sandbox.snippet import BASH, Outcome, Snippet
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
LIMITS = SandboxLimits(seconds=20.0, memory_mb=256, disk_mb=4)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ZygoteSandbox]:
    with ZygoteSandbox(zygote_config(), LIMITS) as sandbox:
        yield sandbox


def run(sandbox: ZygoteSandbox, code: str, **limits: Any) -> Outcome:
    return sandbox.run(Snippet(code), replace(LIMITS, **limits))


def test_a_snippet_prints_and_ends_as_a_program_does(sandbox: ZygoteSandbox):
    snippet = Snippet(
        "import sys\nprint(sys.stdin.read().upper(), open('data/a.txt').read())\n"
        "print('no', file=sys.stderr)\nsys.exit(3)",
        stdin="ä\n",
        files={"data/a.txt": b"b"},
    )
    outcome = sandbox.run(snippet)
    assert (outcome.stdout, outcome.stderr) == ("Ä\n b\n", "no\n")
    assert (outcome.exit_code, outcome.signal, outcome.limit) == (3, None, None)
    assert 0 < outcome.cpu_seconds < 20 and not outcome.succeeded


def test_a_traceback_shows_the_code_and_nothing_of_ours(sandbox: ZygoteSandbox):
    outcome = run(sandbox, "def f():\n    return 1 / 0\n\nf()")
    assert outcome.stderr.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "main.py", line 4, in <module>',
        "    f()",
    ]
    assert outcome.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "sandbox" not in outcome.stderr and outcome.exit_code == 1
    assert "SyntaxError" in run(sandbox, "1 +").stderr


def test_the_same_code_prints_the_same(sandbox: ZygoteSandbox):
    code = "import random; print(random.random(), {'a', 'b', 'c', 'd'}, hash('x'))"
    first, second = (sandbox.run(Snippet(code, seed=5)).stdout for _ in range(2))
    assert first == second and first.startswith("0.6229016948897019 ")  # random.Random(5)
    assert sandbox.run(Snippet(code, seed=6)).stdout != first


@pytest.mark.parametrize(
    ("code", "limits", "limit"),
    [
        ("while True: pass", {"seconds": 0.3}, "time"),
        ("while True: pass", {"cpu_seconds": 1.0}, "cpu"),
        ("x = bytearray(2**30)", {}, "memory"),
        ("open('a', 'wb').write(b'x' * 2**23)", {}, "disk"),
        ("for i in range(9):\n  open(str(i), 'wb', 0).write(b'x' * 2**20)", {}, "disk"),
        ("while True: print('x' * 1000)", {}, "output"),
        ("a = [open('/dev/null') for _ in range(99)]", {}, "files"),
        (
            "import threading, time\n"
            "for _ in range(99): threading.Thread(target=time.sleep, args=[0.1]).start()",
            {},
            "processes",
        ),
    ],
)
def test_a_limit_ends_a_snippet_and_is_named(
    code: str, limits: dict[str, float], limit: str, sandbox: ZygoteSandbox
):
    outcome = run(sandbox, code, **limits)
    assert outcome.limit == limit, outcome
    assert len(outcome.stdout) <= LIMITS.output_kb * 1024
    assert outcome.seconds < 15


def test_what_was_printed_before_a_limit_is_kept(sandbox: ZygoteSandbox):
    outcome = run(sandbox, "print('early')\nwhile True: pass", seconds=0.3)
    assert outcome.stdout == "early\n" and outcome.exit_code is None


def test_threads_asyncio_and_files_work(sandbox: ZygoteSandbox):
    code = """
import asyncio, shutil, sqlite3, tempfile
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(abs, range(-5, 0))))
print(asyncio.run(asyncio.sleep(0, 'slept')))
with tempfile.NamedTemporaryFile('w+') as file:
    print(file.write('text'))
open('a', 'w').write('x'); shutil.copy('a', 'b')
print(sqlite3.connect('base.db').execute('select 1 + 1').fetchone())
import atexit; atexit.register(print, 'end')
"""
    assert run(sandbox, code).stdout.split("\n") == ["15", "slept", "4", "(2,)", "end", ""]


def test_bash_runs_programs_where_processes_are_allowed(sandbox: ZygoteSandbox):
    snippet = Snippet("echo $HOME | wc -l; seq 3 | sort -r > out; cat out; exit 4", language=BASH)
    with pytest.raises(UserError, match="subprocesses=True"):
        sandbox.run(snippet)
    outcome = sandbox.run(snippet, replace(LIMITS, subprocesses=True))
    assert (outcome.stdout, outcome.exit_code) == ("1\n3\n2\n1\n", 4), outcome


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "", ".", "a//b", "a\0b"])
def test_files_are_written_within_the_folder(path: str, sandbox: ZygoteSandbox):
    with pytest.raises(UserError, match="within its folder"):
        sandbox.run(Snippet("", files={path: b""}))


def test_a_session_keeps_its_state_and_shows_values(sandbox: ZygoteSandbox):
    with sandbox.session() as session:
        assert session.run("x = 20\nopen('f', 'w').write('kept')").stdout == "4\n"
        assert session.run("x + 1").stdout == "21\n"
        failed = session.run("y = 1\nx.z")
        assert failed.exit_code == 1 and "AttributeError" in failed.stderr
        assert session.run("print(y, open('f').read(), _)").stdout == "1 kept 21\n"
        assert session.run("raise SystemExit(3)").exit_code == 3  # as in a notebook
        assert session.run("x").stdout == "20\n" and not session.is_over


def test_a_late_call_is_interrupted_and_the_state_stays(sandbox: ZygoteSandbox):
    with sandbox.session(limits=replace(LIMITS, seconds=0.5)) as session:
        session.run("x = 1")
        late = session.run("import time\nwhile True: x += 1; time.sleep(0.01)")
        assert late.limit == "time" and "KeyboardInterrupt" in late.stderr
        assert int(session.run("x").stdout) > 1


def test_a_call_that_refuses_to_end_ends_its_session(sandbox: ZygoteSandbox):
    session = sandbox.session(limits=replace(LIMITS, seconds=0.5))
    code = "import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass"
    assert session.run(code).limit == "time" and session.is_over
    with pytest.raises(UserError, match="is over"):
        session.run("1")


@pytest.mark.parametrize(
    ("code", "attribute", "value"),
    [
        ("import os; os._exit(7)", "exit_code", 7),
        ("import ctypes; ctypes.string_at(8)", "signal", 11),
        ("while True: print('x' * 1000)", "limit", "output"),
        ("import os; os.close(3)", "exit_code", 0),
        ("import os; os.close(4)", "exit_code", 0),
        ("import os; os.abort()", "signal", 6),
    ],
)
def test_code_that_ends_its_process_ends_the_session(
    code: str, attribute: str, value: object, sandbox: ZygoteSandbox
):
    session = sandbox.session(limits=replace(LIMITS, seconds=3.0))
    outcome = session.run(code)
    if not session.is_over:  # it has only closed its pipe: the next call finds out
        outcome = session.run("1")
    assert session.is_over
    if attribute == "exit_code" and value == 0:
        assert outcome.signal == signal.SIGKILL or outcome.exit_code == 0
    else:
        assert getattr(outcome, attribute) == value, outcome


def test_a_made_up_reply_is_ignored(sandbox: ZygoteSandbox):
    with sandbox.session() as session:
        fake = json.dumps({"nonce": "0" * 32, "status": 0})
        flood = f"import os\nfor _ in range(2000): os.write(4, {fake!r}.encode() + b'\\n[' * 9)"
        assert session.run(f"{flood}\n1 / 0").exit_code == 1
        printed = session.run(f"print({fake!r})")
        assert printed.stdout == f"{fake}\n"
        assert session.run("2 + 2").stdout == "4\n"


def test_output_between_calls_belongs_to_the_next(sandbox: ZygoteSandbox):
    with sandbox.session() as session:
        code = "import threading\nthreading.Timer(0.05, print, ['late']).start()\nprint('now')"
        assert session.run(code).stdout == "now\n"
        assert session.run("import time; time.sleep(0.3)").stdout == "late\n"


def test_a_fork_has_the_state_and_goes_its_own_way(sandbox: ZygoteSandbox):
    with sandbox.session(seed=3) as session:
        session.run("import random\nx = [random.random()]")
        with session.fork() as fork:
            fork.run("x.append(1)")
            assert fork.run("len(x)").stdout == "2\n"
            assert fork.run("x[0]").stdout == session.run("x[0]").stdout
        assert session.run("len(x)").stdout == "1\n"


def test_a_replayed_session_shows_what_a_living_one_shows(sandbox: ZygoteSandbox):
    cells = ("x = 3\nprint('first')", "x += 1\nx", "1 / 0", "def f(): return x", "f() + 1", "'ü'")
    with sandbox.session() as living:
        replayed = ReplayedSession(sandbox, 0, None)
        for code in cells:
            first, again = living.run(code), replayed.run(code)
            assert (first.stdout, first.exit_code) == (again.stdout, again.exit_code), code
            assert first.stderr.splitlines()[-1:] == again.stderr.splitlines()[-1:]
        assert replayed.fork().run("x").stdout == "4\n"


def test_two_episodes_see_neither_files_nor_processes_of_each_other(sandbox: ZygoteSandbox):
    with sandbox.session() as first, sandbox.session() as second:
        first.run("import os\nopen('secret', 'w').write('x')")
        path = first.run("os.path.abspath('secret')").stdout.strip().strip("'")
        code = f"import os\nprint(os.path.exists({path!r}), os.listdir('.'))"
        assert second.run(code).stdout == "False []\n"
        attempt = f"import os\nos.kill({first.pid}, 9)"
        assert "PermissionError" in second.run(attempt).stderr
        assert first.run("open('secret').read()").stdout == "'x'\n"


def test_a_neighbor_that_burns_cpu_does_not_stop_others(sandbox: ZygoteSandbox):
    burn = (
        "import threading\n"
        "for _ in range(8): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
    )
    thread = threading.Thread(target=run, args=(sandbox, burn), kwargs={"seconds": 1.5})
    thread.start()
    time.sleep(0.2)
    assert run(sandbox, "print(sum(range(1000)))", seconds=10.0).stdout == "499500\n"
    thread.join()


def test_many_at_once_get_each_its_own_output(sandbox: ZygoteSandbox):
    async def run_all() -> list[Outcome]:
        snippets = [Snippet(f"import time; time.sleep(0.05); print({i})") for i in range(24)]
        return await asyncio.gather(*map(sandbox.run_async, snippets))

    outcomes = asyncio.run(run_all())
    assert [outcome.stdout for outcome in outcomes] == [f"{i}\n" for i in range(24)]


def children(pid: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def leftovers(sandbox: ZygoteSandbox) -> tuple[int, int, int, list[int], list[str]]:
    """Descriptors here and in the zygote, its children, mounts, and temporary files."""
    zygote = sandbox.client.pid
    descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), zygote)]
    mounts = Path(f"/proc/{zygote}/mounts").read_text().count("\n")
    files = sorted(str(path) for path in Path(sandbox.client.folder).rglob("*"))
    return descriptors[0], descriptors[1], mounts, children(zygote), files


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_snippets_in_a_row_leave_no_process_descriptor_mount_or_file(count: int):
    codes = (
        "print(1)",
        "open('a', 'w').write('x'); raise SystemExit(1)",
        "import os; os.abort()",
        "import threading as t, time; t.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    )
    with ZygoteSandbox(zygote_config(), LIMITS) as sandbox:
        run(sandbox, "1")
        time.sleep(0.3)  # until the zygote has closed what it had for it
        before = leftovers(sandbox)
        for i in range(count):
            run(sandbox, codes[i % len(codes)])
        with sandbox.session() as session:
            session.run("1")
        deadline = time.monotonic() + 10
        while leftovers(sandbox) != before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert leftovers(sandbox) == before


def test_a_closed_sandbox_leaves_nothing_and_refuses():
    sandbox = ZygoteSandbox(zygote_config(), LIMITS)
    session = sandbox.session()
    session.run("1")
    pid, zygote = session.pid, sandbox.client.pid
    folder = sandbox.client.folder
    assert os.path.isdir(folder)
    sandbox.close()
    assert not os.path.exists(folder)
    assert not any(os.path.exists(f"/proc/{process}") for process in (pid, zygote))
    session.close()
    with pytest.raises(UserError, match="is closed"):
        sandbox.run(Snippet("1"))


def wait_until_gone(pid: int | None) -> None:
    """Wait until a process has ended; its zombie may stay with its last parent."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state in "ZX":
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")


def test_a_zygote_that_was_killed_is_a_failure_and_replaced():
    with ZygoteSandbox(zygote_config(), LIMITS) as sandbox:
        session = sandbox.session()
        session.run("x = 1")
        os.kill(sandbox.client.pid, signal.SIGKILL)
        wait_until_gone(session.pid)
        with session, pytest.raises(EnvironmentFailure, match="zygote is gone"):
            session.run("x")
        assert run(sandbox, "print(2)").stdout == "2\n"


def test_a_zygote_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agentrl_jax.sandbox.zygote_sandbox.GRACE_SECONDS", 0.3)
    with ZygoteSandbox(zygote_config(), LIMITS) as sandbox:
        os.kill(sandbox.client.pid, signal.SIGSTOP)
        with pytest.raises(EnvironmentFailure, match="did not end"):
            run(sandbox, "1", seconds=0.2)
        assert run(sandbox, "print(3)").stdout == "3\n"


def test_a_host_that_dies_takes_its_snippets_along(tmp_path: Path):
    program = (
        "import sys, time\n"
        "from agentrl_jax.sandbox.ladder import zygote_config\n"
        "from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox\n"
        "from agentrl_jax.sandbox.limits import SandboxLimits\n"
        "session = ZygoteSandbox(zygote_config(), SandboxLimits()).session()\n"
        "session.run('1')\n"
        "print(session.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    with host.stdout as stdout:
        pid = int(stdout.readline())
        host.kill()
        host.wait()
    wait_until_gone(pid)

"""Worker processes in the sandbox: environments work, and reach little beyond themselves."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import probing_env

from agentrl_jax.configs import tools_grpo
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.worker_confinement import WorkerSandbox
from agentrl_jax.storage.config_json import to_json
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.builders import make_workers
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.workers.pool import EnvHandle, Task
from agentrl_jax.workers.process_pool import ProcessPool

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)


def answers(sandbox: WorkerSandbox, codes: Sequence[str]) -> list[str]:
    """What an environment in a sandboxed worker prints."""

    async def play() -> list[str]:
        pool = ProcessPool(1, sandbox=sandbox)
        await pool.start()
        try:
            env = EnvHandle(pool, Task(probing_env.ENVIRONMENT_ID, 0), Timeouts(60.0))
            await env.reset()
            return [(await env.step(assistant(code)))[0][0].text.strip() for code in codes]
        finally:
            await pool.stop()

    return asyncio.run(play())


@pytest.mark.parametrize("name", ["agentrl/Wordle-v0", "agentrl/PriceList-v0"])
def test_a_shipped_environment_plays_as_it_does_elsewhere(name: str):
    async def play(sandbox: WorkerSandbox | None) -> object:
        pool = ProcessPool(1, sandbox=sandbox)
        await pool.start()
        try:
            env = EnvHandle(pool, Task(f"agentrl_jax.envs:{name}", 3))
            opening, _ = await env.reset()
            return opening, await env.play_scripted("expert", 0)
        finally:
            await pool.stop()

    assert asyncio.run(play(WorkerSandbox(True))) == asyncio.run(play(None))


def test_an_environment_reaches_what_it_is_given_and_no_more(tmp_path: Path):
    readable, secret, written = (tmp_path / name for name in ("shown", "secret", "written"))
    for folder in (readable, secret, written):
        folder.mkdir()
        (folder / "file").write_text("text")
    sandbox = WorkerSandbox(True, (str(readable),), (str(written),), disk_mb=4)
    reached = answers(
        sandbox,
        [
            f"print(open('{readable}/file').read())",
            f"open('{written}/new', 'w').write('x')",
            "import tempfile; print(tempfile.TemporaryFile('w').write('x'))",
            "import subprocess; print(subprocess.run(['echo', '2'], capture_output=True).stdout)",
            "import threading; t = threading.Thread(target=print); t.start(); t.join(); print(3)",
        ],
    )
    assert reached == ["text", "", "1", "b'2\\n'", "3"]
    assert (written / "new").read_text() == "x"
    refused = answers(
        sandbox,
        [
            f"open('{secret}/file')",
            f"open('{readable}/file', 'w')",
            "open('/etc/passwd')",
            f"open('/proc/{os.getpid()}/environ', 'rb')",
            f"import os; os.kill({os.getpid()}, 0)",
            "import socket; socket.create_connection(('127.0.0.1', 9))",
            "import os; os.setuid(0)",
            f"import os; os.chmod('{readable}/file', 0o777)",
            "import ctypes, os; print(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))",
        ],
    )
    assert [text[:15] for text in refused] == ["PermissionError"] * 8 + ["-1"], refused
    full = "open(tempfile.gettempdir() + '/a', 'wb').write(b'x' * 2**23)"
    assert "OSError" in answers(sandbox, ["import tempfile", full])[1]


def test_the_python_tool_works_within_a_sandboxed_worker():
    code = """
from agentrl_jax.sandbox.python_tool import PythonTool
tool = PythonTool()
tool.restart(0)
print(tool.python("x = 2\\nx + 1"), tool.python("open('/etc/passwd')")[-40:])
tool.close()
"""
    (text,) = answers(WorkerSandbox(True), [code])
    assert text.startswith("3") and text.endswith("denied: '/etc/passwd'"), text


def test_the_sandbox_is_for_processes_and_its_folders_exist(tmp_path: Path):
    config = EnvironmentConfig(workers=0, sandbox=WorkerSandbox(True))
    with pytest.raises(UserError, match="sandbox are for worker processes"):
        make_workers(config)
    missing = WorkerSandbox(True, (str(tmp_path / "no"),))
    with pytest.raises(UserError, match="there is none"):
        make_workers(EnvironmentConfig(sandbox=missing))
    with pytest.raises(UserError, match="disk_mb must be at least 1"):
        make_workers(EnvironmentConfig(sandbox=WorkerSandbox(True, disk_mb=0)))


def test_a_worker_that_cannot_be_confined_ends_the_run(tmp_path: Path):
    async def start() -> None:
        pool = ProcessPool(1, sandbox=WorkerSandbox(True))
        pool._environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
        await pool.start()

    # A module that starts a thread whenever Python starts.
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n"
    )
    with pytest.raises(UserError, match="cannot confine a process with threads"):
        asyncio.run(start())


def test_a_config_without_the_sandbox_is_stored_as_before():
    experiment = tools_grpo.get_config()
    assert "sandbox" not in to_json(experiment.environment)["fields"]
    experiment.environment.sandbox = WorkerSandbox(True)
    stored = to_json(experiment.environment)["fields"]["sandbox"]["fields"]
    assert stored == {"enabled": True, "read_folders": [], "write_folders": [], "disk_mb": 256}

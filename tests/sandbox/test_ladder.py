"""The ladder: which sandbox a config gets, and that there is none that does not hold."""

import shutil
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox import kernel, ladder
from agentrl_jax.sandbox.confinement import Protections
from agentrl_jax.sandbox.ladder import Rung, SandboxConfig, open_sandbox, zygote_config
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.readable_files import module_rules, python_rules, standard_search_path
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.self_test import check_sandbox
from agentrl_jax.sandbox.snippet import Outcome, Snippet, describe_end, limit_of_error
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox

needs_landlock = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)


@needs_landlock
def test_the_default_is_the_fastest_and_says_so_once(capsys: pytest.CaptureFixture[str]):
    with open_sandbox(SandboxConfig(modules=("numpy",))) as sandbox:
        code = "import numpy as np; print(np.arange(3).sum(), np.random.rand() < 1)"
        assert sandbox.run(Snippet(code)).stdout == "3 True\n"
        denied = sandbox.run(Snippet("import scipy"))
        assert "ModuleNotFoundError" in denied.stderr
        assert "No module named 'agentrl_jax'" in sandbox.run(Snippet("import agentrl_jax")).stderr
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("code runs in the sandbox landlock: Landlock ")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_bubblewrap_shows_a_system_of_its_own():
    with open_sandbox(SandboxConfig("bubblewrap")) as sandbox:
        code = "import os; print(os.getpid() < 9, len(os.listdir('/proc')) < 99, os.getcwd())"
        outcome = sandbox.run(Snippet(code, stdin="in", files={"a": b"x"}))
        assert outcome.stdout == "True True /work\n", outcome
        limits = SandboxLimits(seconds=1.0)
        assert sandbox.run(Snippet("while True: pass"), limits).limit == "time"
        with sandbox.session(limits=limits) as session:
            session.run("x = 1")
            assert session.run("import time; time.sleep(9)").limit == "time"
            assert session.run("x").stdout == "1\n"


@pytest.mark.skipif(shutil.which("runsc") is None, reason="gVisor's runsc is not installed")
def test_gvisor_runs_snippets_and_replays_sessions():
    with open_sandbox(SandboxConfig("gvisor")) as sandbox:
        outcome = sandbox.run(Snippet("import os; print(os.uname().release)\n1 / 0"))
        assert outcome.stdout.startswith("4.") and outcome.exit_code == 1
        with sandbox.session() as session:
            session.run("x = 2\nprint('once')")
            assert session.run("x + 1").stdout == "3\n"


def test_a_demand_that_nothing_meets_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"(?s)as strong as 'bubblewrap'.*Debian's package.*runsc"):
        open_sandbox(SandboxConfig("bubblewrap"))
    with pytest.raises(UserError, match=r"landlock, bubblewrap, gvisor, remote, not 'docker'"):
        SandboxConfig("docker")
    with pytest.raises(UserError, match="no url is given"):
        open_sandbox(SandboxConfig("remote"))


def test_without_landlock_the_next_rung_is_taken_or_none(monkeypatch: pytest.MonkeyPatch):
    opened: list[Rung] = []

    def open_rung(rung: Rung, config: SandboxConfig) -> Sandbox:
        opened.append(rung)
        raise UserError("not here")

    monkeypatch.setattr(ladder, "open_rung", open_rung)
    with pytest.raises(UserError, match="so no code is run"):
        open_sandbox(SandboxConfig())
    assert opened == [Rung.LANDLOCK, Rung.BUBBLEWRAP, Rung.GVISOR, Rung.REMOTE]


@needs_landlock
@pytest.mark.parametrize(
    ("name", "hole"),
    [
        ("landlock", "it can read a file of the host"),
        ("seccomp", "it can start processes"),
    ],
)
def test_a_sandbox_with_a_hole_is_refused(name: str, hole: str):
    switches = [field.name != name for field in fields(Protections)]
    config = replace(zygote_config(), protections=switches)
    refusal = pytest.raises(UserError, match=f"does not hold.*{hole}")
    with ZygoteSandbox(config, SandboxLimits()) as sandbox, refusal:
        check_sandbox(sandbox, is_here=True)


def test_modules_that_are_not_installed_are_refused():
    with pytest.raises(UserError, match="no_such_module, which is not installed"):
        open_sandbox(SandboxConfig(modules=("no_such_module",)))
    folders, rules = module_rules(("json", "numpy.linalg"))
    assert list(folders) == ["numpy"] and any(rule.path.endswith("/numpy") for rule in rules)
    readable = [rule.path for rule in python_rules()]
    assert standard_search_path()[0] in readable and not any("agentrl" in x for x in readable)


@pytest.mark.parametrize(
    "wrong", [{"seconds": 0.0}, {"memory_mb": -1}, {"open_files": 4}, {"cpu_seconds": float("nan")}]
)
def test_limits_are_positive(wrong: dict[str, Any]):
    with pytest.raises(UserError, match="limit"):
        SandboxLimits(**wrong)


def test_limits_survive_their_packing():
    limits = SandboxLimits(1.5, 2.5, 3, 4, 5, 6, True, 70)
    assert SandboxLimits.unpack(limits.pack()) == limits


@pytest.mark.parametrize(
    ("stderr", "limit"),
    [
        ("Traceback\nMemoryError\n", "memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB", "memory"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("RuntimeError: can't start new thread", "processes"),
        ("bash: fork: retry: Resource temporarily unavailable", "processes"),
        ("OSError: [Errno 24] Too many open files: 'a'", "files"),
        ("MemoryError\nValueError: other", None),
        ("", None),
    ],
)
def test_the_last_line_of_the_errors_names_a_limit(stderr: str, limit: str | None):
    assert limit_of_error(stderr) == limit


def test_an_end_is_described_in_a_sentence():
    limits = SandboxLimits(seconds=2.5)
    late = Outcome("", "", None, 9, "time")
    assert describe_end(late, limits) == "It exceeded its limit of 2.5 s."
    assert describe_end(Outcome("", "", None, 11), limits) == "It was ended by signal 11."
    assert describe_end(Outcome("", "", 3), limits) == "Its exit code is 3."
    assert describe_end(Outcome("", "", 0), limits) == ""

"""Runs tests against a module with another source, in a process that is forked for it.

The parent has imported JAX, pytest and what does not depend on the module, but has started no
backend; so a mutant costs the imports that depend on it, and its tests.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import hypothesis
import pytest

MEMORY_BYTES = 16 * 2**30  # of address space: a mutant may ask for an array of any size
WAIT_FACTOR = 5  # a process that sleeps is ended after so many times its limit


@dataclass(frozen=True)
class Outcome:
    """What the tests made of a source."""

    status: str  # killed, survived or timeout
    test: str  # the first one that failed
    seconds: float  # of the processor
    durations: Mapping[str, float]  # seconds of each test that was run


class DurationOrder:
    """A plugin of pytest: short tests first; records their durations and which one fails first."""

    def __init__(self, durations: Mapping[str, float]) -> None:
        self._known = durations
        self.durations: dict[str, float] = {}
        self.failure = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._known.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failure = self.failure or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failure = self.failure or f"import by {report.nodeid}"


def test_source(
    name: str,
    source: str,
    files: Sequence[Path],
    limit_s: float,
    rootdir: Path,
    durations: Mapping[str, float] = MappingProxyType({}),
) -> Outcome:
    """Run the fast tests of some files, in order and up to the first failure, against a source of
    the module `name`, which this process must not have imported.

    Args:
        name: of the module.
        source: in place of the module's file.
        files: of tests.
        limit_s: seconds of the processor after which the tests are ended.
        rootdir: of pytest.
        durations: seconds of tests; the shorter ones of a file are run first.

    Raises:
        RuntimeError: the module has been imported already, or there are no tests.
    """
    if name in sys.modules:
        raise RuntimeError(f"{name} has been imported before its mutants")

    def run_tests() -> dict[str, Any]:
        try:
            import_from_source(name, source)
        except Exception as error:
            return {
                "code": int(pytest.ExitCode.TESTS_FAILED),
                "test": f"import: {error!r:.80}",
                "durations": {},
            }
        # The same examples each time, and no search for the simplest one that fails.
        hypothesis.settings.register_profile(
            "mutation",
            derandomize=True,
            database=None,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        )
        hypothesis.settings.load_profile("mutation")
        order, code = DurationOrder(durations), pytest.ExitCode.NO_TESTS_COLLECTED
        flags = ["-x", "-q", "--assert=plain", "-m", "not slow", "-p", "no:cacheprovider"]
        for file in files:  # each is imported only where all before it pass
            code = pytest.main([*flags, f"--rootdir={rootdir}", str(file)], plugins=[order])
            if code != pytest.ExitCode.OK:
                break
        return {"code": int(code), "test": order.failure, "durations": order.durations}

    result, ended_by, seconds = call_in_fork(run_tests, limit_s)
    if ended_by in (signal.SIGXCPU, signal.SIGKILL):
        return Outcome("timeout", "", seconds, {})
    if result is None:
        return Outcome("killed", f"the process ended with {ended_by}", seconds, {})
    code = result.get("code")
    if code == pytest.ExitCode.OK:
        return Outcome("survived", "", seconds, result["durations"])
    if code not in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        raise RuntimeError(f"pytest cannot run {files}: {result.get('error', result['output'])}")
    return Outcome("killed", result["test"], seconds, result["durations"])


test_source.__test__ = False  # not a test


def import_from_source(name: str, source: str) -> ModuleType:
    """The module `name`, imported from this source in place of its file."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or name in sys.modules:
        raise RuntimeError(f"{name} is no module that can be imported from another source")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # The loader adds what an import hook adds to the file: checks of shapes.
    code = spec.loader.source_to_code(source.encode(), spec.origin)  # pyright: ignore
    exec(code, vars(module))
    package, _, attribute = name.rpartition(".")
    if package:
        setattr(sys.modules[package], attribute, module)
    return module


def call_in_fork(
    fn: Callable[[], dict[str, Any]], limit_s: float
) -> tuple[dict[str, Any] | None, int, float]:
    """The result of a function in a forked process without output, the signal that ended the
    process, or 0, and the seconds of the processor that it took.

    Args:
        fn: its result must be JSON.
        limit_s: seconds of the processor after which the process is ended.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _run_child(fn, limit_s, writing)
    os.close(writing)
    try:
        status, seconds = _wait(pid, time.monotonic() + WAIT_FACTOR * limit_s)
    finally:
        _end_group(pid)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return json.loads(data) if data else None, ended_by, seconds


def _run_child(fn: Callable[[], dict[str, Any]], limit_s: float, writing: int) -> None:
    """Call the function, write its result and the end of its output, and end the process."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    output = os.memfd_create("output")
    for stream in (1, 2):
        os.dup2(output, stream)
    try:
        result = fn()
    except BaseException:
        result = {"error": traceback.format_exc()}
    sys.stdout.flush()
    size = os.fstat(output).st_size
    text = os.pread(output, 2000, max(0, size - 2000)).decode(errors="replace")
    os.write(writing, json.dumps({**result, "output": text}).encode())
    os._exit(0)


def _wait(pid: int, deadline: float) -> tuple[int, float]:
    """The exit status of a process, which is ended at the deadline, and its processor time."""
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            _end_group(pid)
        time.sleep(0.01)


def _end_group(pid: int) -> None:
    """End what is left of the processes that a forked one started, and itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)

"""The folder of compiled programs: its default, its options, and that a second start reads it."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from agentrl_jax.compiler import compilation_cache
from agentrl_jax.compiler.compilation_cache import VARIABLE, enable_compilation_cache

PROGRAM = """
import sys, jax
from agentrl_jax.compiler.compilation_cache import enable_compilation_cache
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
enable_compilation_cache(sys.argv[1])
jax.jit(lambda x: x @ x + 1)(jax.numpy.ones((8, 8))).block_until_ready()
print(sum(hits))
"""


def hits_of_a_start(folder: Path) -> int:
    variables = {k: v for k, v in os.environ.items() if k != VARIABLE}
    variables |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_second_start_reads_what_the_first_compiled(tmp_path: Path):
    first, second = (hits_of_a_start(tmp_path / "compiled") for _ in range(2))
    assert first == 0 and second > 0 and list((tmp_path / "compiled").iterdir())


@pytest.mark.parametrize(
    ("option", "backend", "expected"),
    [
        ("auto", "cpu", ""),
        ("auto", "tpu", "~/.cache/agentrl_jax/compiled"),
        ("none", "tpu", ""),
        ("gs://bucket/compiled", "cpu", "gs://bucket/compiled"),
    ],
)
def test_where_programs_are_kept(
    monkeypatch: pytest.MonkeyPatch, option: str, backend: str, expected: str
):
    set_to: dict[str, str] = {}
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(compilation_cache.jax.config, "update", set_to.__setitem__)
    expected = str(Path(expected).expanduser()) if expected.startswith("~") else expected
    assert enable_compilation_cache(option) == expected
    assert set_to == ({"jax_compilation_cache_dir": expected} if expected else {})


def test_the_variable_of_jax_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    assert enable_compilation_cache("/here") == "/elsewhere"

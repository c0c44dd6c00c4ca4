"""The attack battery: each attack is held, and succeeds where what holds it is switched off."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentrl_jax.launch.benchmarks.sandbox.attack import Attack
from agentrl_jax.launch.benchmarks.sandbox.battery import ATTACKS, Battery
from agentrl_jax.launch.benchmarks.sandbox.battery_process import NOBODY
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.ladder import Rung, SandboxConfig, open_rung
from agentrl_jax.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
# What gVisor does not bound: files cost memory of its kernel, until the snippet's time is up. It
# counts CPU time coarsely. Without a file system of its own ("old") a folder's size is looked at
# now and then, on a busy machine too late.
NOT_HELD = {"GVISOR": {"files without end"}}
COARSE = {"GVISOR": {"CPU time in threads"}}
IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def battery() -> Iterator[Battery]:
    with Battery() as battery:
        yield battery


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_rung(Rung.LANDLOCK, SandboxConfig()) as sandbox:
        yield sandbox


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_held(attack: Attack, battery: Battery, sandbox: Sandbox):
    result = battery.run(attack, sandbox)
    assert result.achieved == (), result


@pytest.mark.skipif(not IS_ROOT, reason="what is switched off protects root's rights")
@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.held_by or attack.loose_limits],
    ids=lambda attack: attack.name,
)
def test_an_attack_succeeds_without_what_holds_it(attack: Attack, battery: Battery):
    result = battery.run_weakened(attack)
    assert result.achieved != (), result


def test_every_protection_holds_an_attack():
    held_by = {name for attack in ATTACKS for name in attack.held_by}
    assert held_by == {
        "isolation", "limits", "landlock", "seccomp", "closed_descriptors", "clean parent",
    }  # fmt: skip
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "user", "host"),
    [
        ("LANDLOCK", NOBODY, ""),
        ("LANDLOCK", NOBODY, "old"),
        ("LANDLOCK", None, "old"),
        ("BUBBLEWRAP", None, ""),
        ("BUBBLEWRAP", NOBODY, ""),
        ("GVISOR", None, ""),
    ],
)
def test_each_rung_holds_the_battery_for_root_and_for_a_user(rung: str, user: int, host: str):
    programs = {"BUBBLEWRAP": "bwrap", "GVISOR": "runsc"}
    if rung in programs and shutil.which(programs[rung]) is None:
        pytest.skip(f"{programs[rung]} is not installed")
    if user and not IS_ROOT:
        pytest.skip("only root can become another user")
    module = "agentrl_jax.launch.benchmarks.sandbox.battery_process"
    done = subprocess.run(
        [sys.executable, "-m", module, rung, str(user or ""), host],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    assert len(results) == len(ATTACKS)
    achieved = {name for name, achievements in results.items() if achievements}
    coarse = COARSE.get(rung, set()) | ({"disk bomb"} if host == "old" else set())
    assert achieved - coarse == NOT_HELD.get(rung, set()), results

"""Environments that break their contract, importable as "support.misbehaving_envs:Misbehaving-v0".

Each of `FAULTS` is an action at one point of an episode of three turns with reward 1 each.
"""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

import gymnasium
import numpy as np

from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.messages import user

ENVIRONMENT_ID = "support.misbehaving_envs:Misbehaving-v0"
HANG = 600.0  # seconds
Step = Callable[["Misbehaving", Any], Any]


class OddError(Exception):
    """It cannot be pickled, and has no text."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("no text")


class OddBaseException(BaseException):
    """No Exception."""


class OddNumber(float):
    """A number whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def raises(error: BaseException | type[BaseException]) -> Step:
    def step(env: "Misbehaving", result: Any) -> NoReturn:
        raise error

    return step


def does(action: Callable[[], object]) -> Step:
    """The action, and then the right result."""

    def step(env: "Misbehaving", result: Any) -> Any:
        action()
        return result

    return step


def gives(value: Any) -> Step:
    return lambda env, result: value


def replaces(index: int, value: Any) -> Step:
    """One part of the result."""
    return lambda env, result: (*result[:index], value, *result[index + 1 :])


def recurse() -> None:
    recurse()


def fork_and_both_return() -> None:
    os.fork()


def close_standard_files() -> None:
    for number in (0, 1, 2):
        with contextlib.suppress(OSError):  # closed by an earlier episode
            os.close(number)


def leave_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(HANG,)).start()


def leave_a_child() -> None:
    subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({HANG})"])


def raise_by_alarm() -> None:
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(ValueError("an alarm")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    time.sleep(1.0)


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(HANG)


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_itself_gently() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(HANG)


def spoil_the_interpreter() -> None:
    gc.disable()
    sys.setswitchinterval(10.0)
    warnings.simplefilter("error")
    np.seterr(all="raise")
    os.environ.clear()


def run_a_loop() -> None:
    asyncio.run(asyncio.sleep(0.01))


def keep_and_empty(env: "Misbehaving", result: Any) -> Any:
    """The observation is a list that the next step changes."""
    env.retained = list(result[0])
    return (env.retained, *result[1:])


@dataclass(frozen=True)
class Fault:
    """What happens at one point of an episode.

    `kinds` are those under which the failures may be counted; without any the episodes are as
    without the fault.
    """

    point: str  # init, reset, step (the second) or close
    step: Step
    kinds: tuple[str, ...] = ()
    hangs: bool = False
    inline: bool = False  # it harms no more than its environment, so it may share a process


RAISED, NONSENSE, DIED, LATE = ("raised",), ("nonsense",), ("died",), ("deadline",)
TEXT = (user("?\n"),)
FAULTS: dict[str, Fault] = {
    "the constructor raises": Fault("init", raises(RuntimeError("no")), RAISED, inline=True),
    "the constructor hangs": Fault("init", does(lambda: time.sleep(HANG)), LATE, hangs=True),
    "the constructor exits": Fault("init", raises(SystemExit(3)), RAISED, inline=True),
    "reset raises": Fault("reset", raises(KeyError("no")), RAISED, inline=True),
    "reset gives None": Fault("reset", gives(None), NONSENSE, inline=True),
    "reset gives no message": Fault("reset", replaces(0, ()), NONSENSE, inline=True),
    "reset gives a text": Fault("reset", replaces(0, "begin"), NONSENSE, inline=True),
    "reset gives a list as info": Fault("reset", replaces(1, []), NONSENSE, inline=True),
    "step raises": Fault("step", raises(ValueError("no")), RAISED, inline=True),
    "step gives None": Fault("step", gives(None), NONSENSE, inline=True),
    "step gives four parts": Fault("step", lambda e, r: r[:4], NONSENSE, inline=True),
    "step gives a list": Fault("step", lambda e, r: [*r], NONSENSE, inline=True),
    "reward NaN": Fault("step", replaces(1, float("nan")), NONSENSE, inline=True),
    "reward -inf": Fault("step", replaces(1, -np.inf), NONSENSE, inline=True),
    "reward '1.0'": Fault("step", replaces(1, "1.0"), NONSENSE, inline=True),
    "reward None": Fault("step", replaces(1, None), NONSENSE, inline=True),
    "reward [1.0]": Fault("step", replaces(1, [1.0]), NONSENSE, inline=True),
    "reward 1+0j": Fault("step", replaces(1, np.complex64(1)), NONSENSE, inline=True),
    "reward 10**400": Fault("step", replaces(1, 10**400), NONSENSE, inline=True),
    "a number without a text": Fault(
        "step", lambda e, r: (*r[:4], {"x": OddNumber("nan")}), (), inline=True
    ),
    "terminated 'no'": Fault("step", replaces(2, "no"), NONSENSE, inline=True),
    "truncated 1": Fault("step", replaces(3, 1), NONSENSE, inline=True),
    "success 'yes'": Fault("step", replaces(4, {"success": "yes"}), NONSENSE, inline=True),
    "observation None": Fault("step", replaces(0, None), NONSENSE, inline=True),
    "observation of 3 MB": Fault("step", replaces(0, (user("x" * 3_000_000),)), ("flood",)),
    "observation changed later": Fault("step", keep_and_empty, inline=True),
    "step hangs": Fault("step", does(lambda: time.sleep(HANG)), LATE, hangs=True),
    "step ignores signals and hangs": Fault("step", does(ignore_signals), LATE, hangs=True),
    "the process stops (SIGSTOP)": Fault("step", does(stop_itself), LATE, hangs=True),
    "the process gets SIGTERM": Fault("step", does(kill_itself_gently), (*DIED, *RAISED)),
    "the process ends (os._exit)": Fault("step", does(lambda: os._exit(0)), DIED),
    "the process is aborted": Fault("step", does(os.abort), DIED),
    "sys.exit": Fault("step", raises(SystemExit(0)), RAISED, inline=True),
    "KeyboardInterrupt": Fault("step", raises(KeyboardInterrupt), (*RAISED, *DIED)),
    "a BaseException": Fault("step", raises(OddBaseException), RAISED, inline=True),
    "GeneratorExit": Fault("step", raises(GeneratorExit), RAISED, inline=True),
    "StopIteration": Fault("step", raises(StopIteration), RAISED, inline=True),
    "CancelledError": Fault("step", raises(asyncio.CancelledError), RAISED, inline=True),
    "TimeoutError": Fault("step", raises(TimeoutError), RAISED, inline=True),
    "an exception without text": Fault("step", lambda e, r: _raise_odd(), RAISED, inline=True),
    "RecursionError": Fault("step", does(recurse), RAISED, inline=True),
    "MemoryError": Fault("step", raises(MemoryError), (*RAISED, "memory")),
    "an alarm in the main thread": Fault("step", does(raise_by_alarm), RAISED),
    "standard files closed": Fault("step", does(close_standard_files)),
    "sys.stdout closed": Fault("step", does(lambda: sys.stdout.close())),
    "a reply is printed": Fault(
        "step", does(lambda: print('[{"id": 0, "value": null}]', flush=True))
    ),
    "fork, and both return": Fault("step", does(fork_and_both_return)),
    "another working directory": Fault("step", does(lambda: os.chdir("/"))),
    "a thread left behind": Fault("step", does(leave_a_thread)),
    "a child left behind": Fault("step", does(leave_a_child)),
    "a spoiled interpreter": Fault("step", does(spoil_the_interpreter)),
    "asyncio.run": Fault("step", does(run_a_loop)),
    "close raises": Fault("close", raises(ValueError("no"))),
    "close exits": Fault("close", raises(SystemExit(3))),
    "close hangs": Fault("close", does(lambda: time.sleep(HANG)), hangs=True),
}


def _raise_odd() -> NoReturn:
    raise OddError


def _write_x(env: Environment, rng: np.random.Generator) -> str:
    return "x"


class Misbehaving(Environment):
    """Three turns of reward 1, with a fault."""

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _write_x, "expert": _write_x}
    )

    def __init__(self, fault: str = "", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.fault, self.turn = FAULTS.get(fault), 0
        self.retained: list[Any] = []
        self._at("init", None)

    def _at(self, point: str, result: Any) -> Any:
        is_now = self.fault is not None and self.fault.point == point
        return self.fault.step(self, result) if is_now and self.fault else result

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.turn = 0
        return (user("begin\n"),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        self.retained.clear()
        info = {"success": True} if self.turn == 3 else {}
        return (user(f"turn {self.turn}\n"),), 1.0, self.turn == 3, False, info

    def reset(self, **options: Any) -> Any:
        return self._at("reset", super().reset(**options))

    def step(self, action: Any) -> Any:
        result = super().step(action)
        return self._at("step", result) if self.turn == 2 else result

    def close(self) -> None:
        super().close()
        self._at("close", None)


if "Misbehaving-v0" not in gymnasium.registry:
    gymnasium.register("Misbehaving-v0", entry_point="support.misbehaving_envs:Misbehaving")

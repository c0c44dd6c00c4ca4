"""Environments that misbehave, importable in a worker as "support.faulty_envs:Faulty-v0"."""

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.messages import Message, user

ENVIRONMENT_ID = "support.faulty_envs:Faulty-v0"
# Writes a reply to every file but the standard ones, and prints those that it could write to.
FORGE_REPLIES = """
import os
for fd in range(3, 1024):
    try:
        os.write(fd, b'[{"id": 2, "value": null}]\\n')
    except OSError:
        continue
    print(fd)
"""
LEAKED_MEMORY: list[bytearray] = []
LEAK = "x = []\nwhile True: x.append(bytearray(2**24))"
MAP_NORESERVE = 0x4000  # on Linux


def _forge_message(**fields: Any) -> Message:
    """A message with invalid fields, which its constructor would refuse where types are checked."""
    message = user("?\n")
    for name, value in fields.items():
        object.__setattr__(message, name, value)
    return message


# Invalid return values of `step`.
INVALID_STEPS: dict[str, Any] = {
    "NaN": ((user("?\n"),), float("nan"), False, False, {}),
    "infinite": ((user("?\n"),), float("inf"), False, False, {}),
    "complex": ((user("?\n"),), np.complex64(1 + 1j), False, False, {}),
    "no float": ((user("?\n"),), 10**400, False, False, {}),
    "no part": ((user("?\n"),), 1.0, False, False, {"rewards": {"style": float("nan")}}),
    "no parts": ((user("?\n"),), 1.0, False, False, {"rewards": 1.0}),
    "no message": ((), 1.0, False, False, {}),
    "text": ("?\n", 1.0, False, False, {}),
    "surrogate": ((user("\ud800"),), 1.0, False, False, {}),
    "no role": ((_forge_message(role="king"),), 1.0, False, False, {}),
    "no text": ((_forge_message(content=5),), 1.0, False, False, {}),
    "no info": ((user("?\n"),), 1.0, False, False, None),
    "no bool": ((user("?\n"),), 1.0, 0.5, False, {}),
    "no success": ((user("?\n"),), 1.0, True, False, {"success": "yes"}),
    "no seat": ((user("?\n"),), 1.0, False, False, {"seat": -1}),
    "nothing": None,
    "four": ((user("?\n"),), 1.0, False, False),
}


def _write_x(env: Environment, rng: np.random.Generator) -> str:
    return "x"


class Faulty(Environment):
    """Three turns of reward 1, unless `how` names a fault of the second turn.

    With `path`, each reset appends a line to that file, and only the first `times` environments
    fail.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _write_x, "expert": _write_x}
    )

    def __init__(
        self,
        how: str = "",
        path: str = "",
        times: int = 1,
        children: str = "",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.how, self.path, self.times, self.turn, self.number, self.children = (
            how,
            path,
            times,
            0,
            0,
            children,
        )

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.turn = 0
        if self.path:
            with Path(self.path).open("ab", buffering=0) as file:
                written = file.write(b"reset\n")
                # Where this line ends: other processes may have written more by now.
                self.number = file.tell() // written
        if self.how == "raise in reset" and self.number <= self.times:
            raise ValueError("no reset today")
        return (() if self.how == "no opening" else (user("begin\n"),)), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        info: dict[str, Any] = {"world": id(self)}
        if self.turn == 2 and self._now():
            self._misbehave(info)
        if self.turn == 3:
            info["success"] = True
        return (
            (user(f"turn {self.turn}\n" + "x" * self._num_extra()),),
            1.0,
            self.turn == 3 and self.how != "endless",
            False,
            info,
        )

    def step(self, action: Message | str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        real = super().step(action)
        return (
            INVALID_STEPS[self.how]
            if self.how in INVALID_STEPS and self.turn == 2 and self._now()
            else real
        )

    def _num_extra(self) -> int:
        """Characters of a long observation: "long 5000"."""
        name, _, number = self.how.partition(" ")
        return int(number) if name == "long" and self.turn == 2 else 0

    def _now(self) -> bool:
        return not self.path or self.number <= self.times

    def _misbehave(self, info: dict[str, Any]) -> None:
        if self.how == "raise":
            raise ValueError("the world is broken")
        if self.how == "raise strangely":
            raise RuntimeError("\ud800 \x00 {} %s")
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "leave":
            os._exit(3)
        if self.how == "exit":
            sys.exit(3)
        if self.how == "leak":
            while True:
                LEAKED_MEMORY.append(bytearray(2**24))
        if self.how == "leak in a child":
            subprocess.run([sys.executable, "-c", LEAK])
        if self.how == "keep":
            LEAKED_MEMORY.append(bytearray(400 * 2**20))
        if self.how == "reserve":
            mmap.mmap(-1, 2**36, flags=mmap.MAP_PRIVATE | MAP_NORESERVE)
            np.zeros(2**31)  # nothing is written to it
        if self.how == "fork":
            LEAKED_MEMORY.append(bytearray(150 * 2**20))
            children = [os.fork() for _ in range(3)]  # which share it
            if 0 in children:
                time.sleep(600)
            time.sleep(1.0)
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if self.how == "chatter":
            while True:
                os.write(1, b"lorem ipsum " * 1000)
        if self.how == "children":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(self.children).write_text(str(child.pid))
            time.sleep(600)
        if self.how == "sleep":
            time.sleep(600)
        if self.how == "nap":
            time.sleep(0.3)
        if self.how == "long nap":
            time.sleep(2.0)
        if self.how == "nap and raise":
            time.sleep(0.3)
            raise ValueError("not again")
        if self.how == "print":
            print('[{"id": 0, "value": null}]', flush=True)
            os.write(1, b"not even JSON\n")
            subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        if self.how == "variables":
            info["variables"] = dict(os.environ)
        if self.how == "forge":
            child = [sys.executable, "-c", FORGE_REPLIES]
            done = subprocess.run(child, check=True, close_fds=False, stdout=subprocess.PIPE)
            info["written"] = done.stdout.decode().split()
        if self.how == "read":
            info["read"] = sys.stdin.readline()
        if self.how == "secret":
            info["secret"] = object()
        if self.how == "huge":
            info["huge"] = "x" * 5_000_000
        if self.how == "items":
            info["items"] = [0] * 1_100_000
        if self.how == "deep":
            info["deep"] = deep = []
            for _ in range(100_000):
                deep.append([])
                deep = deep[0]
        if self.how == "arrays":
            info |= {"array": np.arange(3), "number": np.float32(0.5), "flag": np.bool_(True)}


if "Faulty-v0" not in gymnasium.registry:
    gymnasium.register("Faulty-v0", entry_point="support.faulty_envs:Faulty")

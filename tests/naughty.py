"""Worlds that misbehave, importable in a worker as "naughty:Naughty-v0"."""

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

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.messages import user

NAME = "naughty:Naughty-v0"


def _say_x(env: Environment, rng: np.random.Generator) -> str:
    return "x"


class Naughty(Environment):
    """Three turns of reward 1, unless `how` says what goes wrong in the second turn.

    With `path`, a line is added to that file at each reset, and only the first `times` worlds go wrong.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": _say_x, "expert": _say_x})

    def __init__(self, how: str = "", path: str = "", times: int = 1, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.how, self.path, self.times, self.turn, self.number = how, path, times, 0, 0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.turn = 0
        if self.path:
            with Path(self.path).open("a") as file:
                file.write("reset\n")
            self.number = len(Path(self.path).read_text().splitlines())
        if self.how == "raise in reset" and self.number <= self.times:
            raise ValueError("no reset today")
        return (user("begin\n"),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        info: dict[str, Any] = {"world": id(self)}
        if self.turn == 2 and (not self.path or self.number <= self.times):
            self._misbehave(info)
        if self.turn == 3:
            info["success"] = True
        return (user(f"turn {self.turn}\n"),), 1.0, self.turn == 3, False, info

    def _misbehave(self, info: dict[str, Any]) -> None:
        if self.how == "raise":
            raise ValueError("the world is broken")
        if self.how == "raise strangely":
            raise RuntimeError("\ud800 \x00 {} %s")
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exit":
            sys.exit(3)
        if self.how == "sleep":
            time.sleep(600)
        if self.how == "print":
            print('[{"id": 0, "value": null}]', flush=True)
            os.write(1, b"not even JSON\n")
            subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        if self.how == "read":
            info["read"] = sys.stdin.readline()
        if self.how == "secret":
            info["secret"] = object()
        if self.how == "huge":
            info["huge"] = "x" * 5_000_000
        if self.how == "arrays":
            info |= {"array": np.arange(3), "number": np.float32(0.5), "flag": np.bool_(True)}


if "Naughty-v0" not in gymnasium.registry:
    gymnasium.register("Naughty-v0", entry_point="naughty:Naughty")

"""The process at the other end of a pipe: reads lists of requests as JSON lines, answers with lists of replies.

Run as `python -m agentrl_jax.worker`; any interpreter that has this package without JAX will do.
"""

import json
import os
import signal
from typing import Any

import numpy as np

from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message


class Worlds:
    """The environments of one worker, by handle."""

    def __init__(self) -> None:
        self._open: dict[int, Environment] = {}
        self._spare: dict[str, list[Environment]] = {}
        self._names: dict[int, str] = {}

    def handle(self, op: str, **arguments: Any) -> Any:
        return {"reset": self.reset, "step": self.step, "play": self.play, "close": self.close}[op](**arguments)

    def reset(self, world: int, name: str, options: dict[str, Any], seed: int, reset_options: dict[str, Any] | None) -> Any:
        key = json.dumps([name, options], sort_keys=True)
        spare = self._spare.setdefault(key, [])
        env = self._open.pop(world, None) or (spare.pop() if spare else make(name, options))
        self._open[world], self._names[world] = env, key
        opening, info = env.reset(seed=seed, options=reset_options)
        return [m.to_dict() for m in opening], info

    def step(self, world: int, action: dict[str, Any]) -> Any:
        observation, reward, terminated, truncated, info = self._open[world].step(Message.from_dict(action))
        return [m.to_dict() for m in observation], reward, terminated, truncated, info

    def play(self, world: int, player: str, seed: int) -> Any:
        """A whole episode by a scripted player, from a world that was just reset."""
        env = self._open[world]
        if player not in env.players:
            raise UserError(f"{type(env).__name__} has no player {player!r}; it has {', '.join(env.players)}")
        random, turns, done = np.random.default_rng(seed), [], False
        while not done:
            action = env.players[player](env, random)
            observation, reward, terminated, truncated, info = env.step(action)
            turns.append((action, [m.to_dict() for m in observation], reward, terminated, truncated, info))
            done = terminated or truncated
        return turns

    def close(self, world: int, keep: bool = True) -> None:
        env = self._open.pop(world, None)
        if env is not None and keep:
            self._spare[self._names.pop(world)].append(env)
        elif env is not None:
            env.close()


def answer(worlds: Worlds, request: dict[str, Any]) -> dict[str, Any]:
    """One reply; what an environment raises becomes text, never a crash of the worker."""
    identity = request.pop("id")
    try:
        return {"id": identity, "value": worlds.handle(**request)}
    except UserError as error:
        return {"id": identity, "user_error": str(error)}
    except Exception as error:
        return {"id": identity, "failure": f"{type(error).__name__}: {error}"}


def _plain(x: Any) -> Any:
    if isinstance(x, np.generic | np.ndarray):
        return x.tolist()
    raise TypeError(f"an environment's info must be plain data, not {type(x).__name__}")


def _encoded(reply: dict[str, Any]) -> str:
    try:
        return _JSON.encode(reply)
    except (TypeError, ValueError) as error:
        return _JSON.encode({"id": reply["id"], "failure": str(error)})


_JSON = json.JSONEncoder(default=_plain)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # What an environment prints must not get into the replies, and what it reads must not come out of the requests.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    worlds = Worlds()
    for line in requests:
        out = [_encoded(answer(worlds, request)) for request in json.loads(line)]
        replies.write(f"[{', '.join(out)}]\n".encode())
        replies.flush()


if __name__ == "__main__":
    main()

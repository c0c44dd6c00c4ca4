"""The other end of a pool of workers: worlds by handle, and requests answered as JSON lines.

As `python -m agentrl_jax.worker MEMORY LARGEST AT` it reads lists of requests as JSON lines and writes lists of replies; any
interpreter that has this package without JAX will do. MEMORY bounds the process, LARGEST one answer, both in bytes. AT is the
descriptor of a file of two int64, where it notes which request it is at and since when (monotonic, in nanoseconds): whoever waits
knows then which world it is that hangs or died.
"""

import json
import math
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, get_args

import numpy as np

from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import Message, Role

LARGEST = 64 * 2**20
OUT_OF_MEMORY = '"kind": "memory"}'
FLUSH_NS = 5_000_000  # quick answers travel together, none waits for the rest of its batch longer than about this
_BOOLS, _NUMBERS = (bool, np.bool_), (float, int, np.number)
_ROLES = frozenset(get_args(Role))


def nonsense(sentence: str) -> EnvironmentFailure:
    return EnvironmentFailure(sentence, "nonsense")


class Worlds:
    """The environments of one worker, by handle."""

    def __init__(self, tick: Callable[[], None]) -> None:
        """`tick` is called whenever a world comes to a turn of an episode that is played here whole."""
        self._tick = tick
        self._open: dict[int, Environment] = {}
        self._spare: dict[str, list[Environment]] = {}
        self._names: dict[int, str] = {}
        self._operations = {name: getattr(self, name) for name in ("reset", "step", "actions", "play", "close")}

    def handle(self, op: str, **arguments: Any) -> Any:
        return self._operations[op](**arguments)

    def reset(self, world: int, name: str, options: dict[str, Any], seed: int, reset_options: dict[str, Any] | None) -> Any:
        key = json.dumps([name, options], sort_keys=True)
        spare = self._spare.setdefault(key, [])
        env = self._open.pop(world, None) or (spare.pop() if spare else make(name, options))
        self._open[world], self._names[world] = env, key
        return checked_opening(env.reset(seed=seed, options=reset_options))

    def step(self, world: int, action: dict[str, Any]) -> Any:
        return checked_step(self._of(world).step(Message.from_dict(action)))

    def actions(self, world: int) -> Any:
        named = self._of(world).actions()
        if named is not None and not all(isinstance(text, str) for text in named):
            raise nonsense(f"actions must return texts or None, not {named!r:.50}")
        return None if named is None else list(named)

    def play(self, world: int, player: str, seed: int, seconds: float) -> Any:
        """A whole episode by a scripted player, from a world that was just reset."""
        env = self._of(world)
        if player not in env.players:
            raise UserError(f"{type(env).__name__} has no player {player!r}; it has {', '.join(env.players)}")
        random, turns, done, until = np.random.default_rng(seed), [], False, time.monotonic() + seconds
        while not done:
            self._tick()
            if time.monotonic() > until:
                raise DeadlineExceeded(f"the player {player!r} was not done after {seconds:g} s and {len(turns):,} turns")
            action = env.players[player](env, random)
            _, _, terminated, truncated, _ = step = checked_step(env.step(action))
            turns.append((action, *step))
            done = terminated or truncated
        return turns

    def close(self, world: int, keep: bool = True) -> None:
        env, name = self._open.pop(world, None), self._names.pop(world, "")
        if env is not None and keep:
            self._spare[name].append(env)
        elif env is not None:
            env.close()

    def stop(self) -> None:
        """Close every world, whatever they raise."""
        for env in [*self._open.values(), *(env for spare in self._spare.values() for env in spare)]:
            try:
                env.close()
            except Exception as error:
                print(f"an environment could not be closed: {type(error).__name__}: {error}", file=sys.stderr)
        self._open, self._spare = {}, {}

    def _of(self, world: int) -> Environment:
        if world not in self._open:
            raise EnvironmentFailure("the world is gone: its worker was replaced", "lost")
        return self._open[world]


def checked_opening(returned: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What `reset` returned, as it travels. Raises EnvironmentFailure where that is no opening."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise nonsense("reset must return (messages, info)")
    opening, info = returned
    if not opening:
        raise nonsense("reset must return at least one message: there is nothing to answer")
    return _wire(opening), _checked_info(info)


def checked_step(returned: Any) -> tuple[list[dict[str, Any]], float, bool, bool, dict[str, Any]]:
    """What `step` returned, as it travels. Raises EnvironmentFailure where that is no step."""
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise nonsense("step must return (messages, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = returned
    if not isinstance(terminated, _BOOLS) or not isinstance(truncated, _BOOLS):
        raise nonsense(f"terminated and truncated must be bools, not {terminated!r:.50} and {truncated!r:.50}")
    if not observation and not (terminated or truncated):
        raise nonsense("step must return at least one message unless the episode is over: there is nothing to answer")
    return _wire(observation), _checked_reward(reward), bool(terminated), bool(truncated), _checked_info(info)


def _checked_reward(reward: Any) -> float:
    if not isinstance(reward, _NUMBERS) or not math.isfinite(reward):
        raise nonsense(f"a reward must be a finite number, not {reward!r:.50}")
    return float(reward)


def _checked_info(info: Any) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise nonsense(f"info must be a dict, not {info!r:.50}")
    parts, success, seat = info.get("rewards", {}), info.get("success"), info.get("seat", 0)
    if not isinstance(parts, dict):
        raise nonsense(f"info['rewards'] must be a dict of numbers, not {parts!r:.50}")
    for reward in parts.values():
        _checked_reward(reward)
    if not (success is None or isinstance(success, _BOOLS)):
        raise nonsense(f"info['success'] must be a bool or None, not {success!r:.50}")
    if isinstance(seat, _BOOLS) or not isinstance(seat, int | np.integer) or seat < 0:
        raise nonsense(f"info['seat'] must be a seat's number, from 0, not {seat!r:.50}")
    return info


def _wire(messages: Any) -> list[dict[str, Any]]:
    """The messages as they travel; text must be Unicode that can be encoded, or the tokenizer would raise far from its cause."""
    try:
        for m in messages:
            if m.role not in _ROLES:
                raise ValueError(f"{m.role!r:.50} is no role")
            m.text.encode()
        return [m.to_dict() for m in messages]
    except (TypeError, ValueError, AttributeError) as error:
        raise nonsense(f"messages must be a tuple of Message, not {messages!r:.50} ({error})") from error


def answer(worlds: Worlds, request: dict[str, Any], largest: int = LARGEST) -> str:
    """The reply as JSON; what an environment raises becomes text, never a crash of the worker."""
    identity = request.pop("id")
    try:
        text = _encoded({"id": identity, "value": worlds.handle(**request)})
        if len(text) <= largest:
            return text
        failure = EnvironmentFailure(f"an answer of {len(text):,} bytes, where at most {largest:,} are allowed", "flood")
    except UserError as error:
        return json.dumps({"id": identity, "user_error": str(error)})
    except EnvironmentFailure as error:
        failure = error
    except MemoryError:
        failure = EnvironmentFailure("the worker ran out of memory", "memory")
    except (Exception, SystemExit) as error:
        failure = EnvironmentFailure(f"{type(error).__name__}: {error}")
    return json.dumps({"id": identity, "failure": str(failure)[:2000], "kind": failure.kind})


def _encoded(reply: dict[str, Any]) -> str:
    try:
        return _JSON.encode(reply)
    except (TypeError, ValueError, RecursionError) as error:
        raise nonsense(f"an environment's info must be plain data ({error})") from error


def _plain(x: Any) -> Any:
    if isinstance(x, np.generic | np.ndarray):
        return x.tolist()
    raise TypeError(f"not {type(x).__name__}")


_JSON = json.JSONEncoder(default=_plain, check_circular=False)  # a circle ends in a RecursionError


def main(memory: int, largest: int, at: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if memory:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    # What an environment prints must not get into the replies, and what it reads must not come out of the requests.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    note = memoryview(mmap.mmap(at, 16)).cast("q")
    threading.Thread(target=outlive_nobody, args=(os.getppid(),), daemon=True).start()

    def tick() -> None:
        note[1] = time.monotonic_ns()

    worlds = Worlds(tick)
    for line in requests:
        ready, flushed = [], time.monotonic_ns()
        for request in json.loads(line):
            note[1] = now = time.monotonic_ns()
            note[0] = request["id"]
            if ready and (now - flushed > FLUSH_NS or request["op"] in ("reset", "play")):  # those may take long
                _flush(replies, ready)
                ready, flushed = [], now
            ready.append(answer(worlds, request, largest))
            if ready[-1].endswith(OUT_OF_MEMORY):  # what holds the memory may hold it for good, and the next would suffer
                _flush(replies, ready)
                return
        _flush(replies, ready)


def outlive_nobody(parent: int) -> None:
    """End this process, with all that its worlds started, soon after the one that asked for it: a world that hangs would stay."""
    while os.getppid() == parent:
        time.sleep(1.0)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _flush(replies: BinaryIO, ready: list[str]) -> None:
    replies.write(f"[{', '.join(ready)}]\n".encode())
    replies.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

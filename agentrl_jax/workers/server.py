"""The worker's end of a pool: environments by id, and requests answered as JSON lines.

`python -m agentrl_jax.workers.server MEMORY LARGEST TEXT CUT FD` reads lists of requests as JSON
lines and writes lists of replies; any interpreter that has this package without JAX will do. MEMORY
bounds what is resident after a request, LARGEST one reply, TEXT an observation's text, all in
bytes; a longer text is cut where CUT is 1. FD is the descriptor of a file of two int64, to which
it writes the request in progress and its start (monotonic, in nanoseconds): so the pool knows which
environment hangs or died.
"""

import contextlib
import json
import mmap
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import Message, action_to_json, with_call_ids
from agentrl_jax.workers.memory_watch import resident_bytes, too_large
from agentrl_jax.workers.observation_limit import DEFAULT_LIMIT, ObservationLimit
from agentrl_jax.workers.validation import invalid_output_failure, validate_reset, validate_step

MAX_REPLY_BYTES = 64 * 2**20
# The pool parses a reply in one piece: commas and brackets bound its time, 0.1 s for so many.
MAX_REPLY_ITEMS = 2**20
OUT_OF_MEMORY_SUFFIX = '"kind": "memory"}'
MAX_IDLE_ENVS = 512  # tasks with options of their own each need an environment of their own
FLUSH_NS = 5_000_000  # fast replies are batched; none waits for its batch longer than about this


class EnvServer:
    """The environments of one worker, by id."""

    def __init__(
        self, on_turn: Callable[[], None], observations: ObservationLimit = DEFAULT_LIMIT
    ) -> None:
        """`on_turn` is called at every turn of a scripted policy's episode ("play")."""
        self._on_turn, self._observations = on_turn, observations
        self._active_envs: dict[int, Environment] = {}
        self._idle_envs: dict[str, list[Environment]] = {}
        self._env_keys: dict[int, str] = {}
        self._operations = {
            name: getattr(self, name) for name in ("reset", "step", "actions", "play", "close")
        }

    def handle(self, op: str, **arguments: Any) -> Any:
        return self._operations[op](**arguments)

    def reset(
        self,
        env_id: int,
        name: str,
        options: dict[str, Any],
        seed: int,
        reset_options: dict[str, Any] | None,
    ) -> Any:
        key = json.dumps([name, options], sort_keys=True)
        idle = self._idle_envs.get(key)
        env = self._active_envs.pop(env_id, None) or (idle.pop() if idle else make(name, options))
        self._active_envs[env_id], self._env_keys[env_id] = env, key
        return validate_reset(env.reset(seed=seed, options=reset_options), self._observations)

    def step(self, env_id: int, action: dict[str, Any]) -> Any:
        result = self._active_env(env_id).step(Message.from_dict(action))
        return validate_step(result, self._observations)

    def actions(self, env_id: int) -> Any:
        actions = self._active_env(env_id).actions()
        if actions is not None and not all(isinstance(text, str) for text in actions):
            raise invalid_output_failure(f"actions must return texts or None, not {actions!r:.50}")
        return None if actions is None else list(actions)

    def play(self, env_id: int, player: str, seed: int, seconds: float) -> Any:
        """An episode of a scripted policy, from an environment that was just reset."""
        env = self._active_env(env_id)
        if player not in env.scripted_policies:
            raise UserError(
                f"{type(env).__name__} has no scripted policy {player!r}; "
                f"it has {', '.join(env.scripted_policies)}"
            )
        rng, turns, is_over = np.random.default_rng(seed), [], False
        deadline = time.monotonic() + seconds
        while not is_over:
            self._on_turn()
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"the scripted policy {player!r} was not done after {seconds:g} s and "
                    f"{len(turns):,} turns"
                )
            action = env.scripted_policies[player](env, rng)
            if isinstance(action, Message):
                action = with_call_ids(action, len(turns))
            step = validate_step(env.step(action), self._observations)
            _, _, terminated, truncated, _ = step
            turns.append((action_to_json(action), *step))
            is_over = terminated or truncated
        return turns

    def close(self, env_id: int, keep: bool = True) -> None:
        env, name = self._active_envs.pop(env_id, None), self._env_keys.pop(env_id, "")
        if env is not None and keep:
            self._keep_idle(name, env)
        elif env is not None:
            env.close()

    def _keep_idle(self, key: str, env: Environment) -> None:
        """Keep an environment for its next reset; the longest unused makes room for it."""
        self._idle_envs[key] = [*self._idle_envs.pop(key, []), env]  # the last used key is last
        if sum(map(len, self._idle_envs.values())) > MAX_IDLE_ENVS:
            oldest = next(key for key, idle in self._idle_envs.items() if idle)
            self._idle_envs[oldest].pop(0).close()
        self._idle_envs = {key: idle for key, idle in self._idle_envs.items() if idle}

    def stop(self) -> None:
        """Close all environments; what they raise is printed."""
        for env in [
            *self._active_envs.values(),
            *(env for idle in self._idle_envs.values() for env in idle),
        ]:
            try:
                env.close()
            except Exception as error:
                print(
                    f"an environment could not be closed: {type(error).__name__}: {error}",
                    file=sys.stderr,
                )
        self._active_envs, self._idle_envs = {}, {}

    def _active_env(self, env_id: int) -> Environment:
        if env_id not in self._active_envs:
            raise EnvironmentFailure("the environment is gone: its worker was replaced", "lost")
        return self._active_envs[env_id]


def handle_request(
    server: EnvServer, request: dict[str, Any], max_reply_bytes: int = MAX_REPLY_BYTES
) -> str:
    """The reply as JSON; exceptions of an environment become text, never a crash of the worker."""
    identity = request.pop("id")
    try:
        text = _encode_reply({"id": identity, "value": server.handle(**request)})
        _check_size(text, max_reply_bytes)
        return text
    except UserError as error:
        return json.dumps({"id": identity, "user_error": str(error)})
    except EnvironmentFailure as error:
        failure = error
    except MemoryError:
        failure = EnvironmentFailure("the worker ran out of memory", "memory")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it raises is a failure of the environment alone
        failure = EnvironmentFailure(_error_text(error))
    return json.dumps({"id": identity, "failure": str(failure)[:2000], "kind": failure.kind})


def _error_text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose text cannot be read"


def _check_size(reply: str, max_bytes: int) -> None:
    """Raises EnvironmentFailure where a reply is too long, or would take too long to parse."""
    num_items = sum(map(reply.count, ",[{"))
    for size, limit, unit in (
        (len(reply), max_bytes, "bytes"),
        (num_items, MAX_REPLY_ITEMS, "commas and brackets"),
    ):
        if size > limit:
            raise EnvironmentFailure(
                f"an answer of {size:,} {unit}, where at most {limit:,} are allowed", "flood"
            )


def _encode_reply(reply: dict[str, Any]) -> str:
    try:
        return _JSON.encode(reply)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_output_failure(
            f"an environment's info must be plain data ({error})"
        ) from error


def _to_plain_json(x: Any) -> Any:
    if isinstance(x, np.generic | np.ndarray):
        return x.tolist()
    raise TypeError(f"not {type(x).__name__}")


# A circular reference ends in a RecursionError.
_JSON = json.JSONEncoder(default=_to_plain_json, check_circular=False)


def main(
    memory_limit: int, max_reply_bytes: int, observation_bytes: int, truncate: int, status_fd: int
) -> None:
    """Answer requests on stdin until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _die_first()
    # Environments must neither print into the replies nor read from the requests: the copies are
    # closed in every program that they start, as is the file of the status.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    os.set_inheritable(status_fd, False)
    status = memoryview(mmap.mmap(status_fd, 16)).cast("q")
    threading.Thread(target=exit_with_parent, args=(os.getppid(),), daemon=True).start()

    def on_turn() -> None:
        status[1] = time.monotonic_ns()

    server = EnvServer(on_turn, ObservationLimit(observation_bytes, bool(truncate)))
    for line in requests:
        ready, flushed = [], time.monotonic_ns()
        for request in json.loads(line):
            status[1] = now = time.monotonic_ns()
            status[0] = request_id = request["id"]
            may_be_slow = request["op"] in ("reset", "play")
            if ready and (now - flushed > FLUSH_NS or may_be_slow):
                _write_replies(replies, ready)
                ready, flushed = [], now
            reply = handle_request(server, request, max_reply_bytes)
            ready.append(_check_memory(reply, request_id, memory_limit) if memory_limit else reply)
            # An environment may hold the memory forever: exit, for the sake of later requests.
            if ready[-1].endswith(OUT_OF_MEMORY_SUFFIX):
                _write_replies(replies, ready)
                return
        _write_replies(replies, ready)


def _die_first() -> None:
    """Where the machine has no memory left, Linux kills this process, not the one that trains."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _check_memory(reply: str, request_id: int, limit: int) -> str:
    """The reply to a request, or a failure where the process has more memory after it.

    The pool's `MemoryWatch` looks at other processes and in the middle of a request, but may be
    late and blame the next environment.
    """
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= limit:  # a syscall, no file
        return reply
    size = resident_bytes()
    if size <= limit:
        return reply
    failure = f"the worker {too_large(size)}"
    return json.dumps({"id": request_id, "failure": failure, "kind": "memory"})


def exit_with_parent(parent: int) -> None:
    """Kill this process and all that it started soon after its parent has ended.

    An environment that hangs would otherwise stay.
    """
    while os.getppid() == parent:
        time.sleep(1.0)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _write_replies(replies: BinaryIO, lines: list[str]) -> None:
    replies.write(f"[{', '.join(lines)}]\n".encode())
    replies.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

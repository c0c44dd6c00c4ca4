"""`Heartbeat`: every process of a run monitors the others; where one is lost, all exit together."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import jax

KEY_PREFIX = "agentrl/heartbeat"
ABORT_KEY = "abort"
MAX_MISSED_BEATS = 10
EXIT_PROCESS_LOST = os.EX_TEMPFAIL  # the exit status of a run that lost a process: start it again

_HANDLERS: list[Any] = []  # called from C: they must outlive their creation


class Heartbeat:
    """A thread that sends heartbeats through the coordination service and monitors the others.

    It counts its own beats instead of reading a clock: where a whole machine was paused, no process
    counts as lost.
    """

    def __init__(
        self, client: Any, index: int, process_names: Sequence[str], timeout: float
    ) -> None:
        """A process that sends no heartbeat for `timeout` seconds is lost."""
        self._client, self._index, self._process_names = client, index, process_names
        self._timeout, self._interval = timeout, timeout / MAX_MISSED_BEATS
        self._stop = threading.Event()
        exit_on_sigabrt(f"most likely because {process_names[0]} is gone")
        self._thread = threading.Thread(target=self._beat_loop, name="heartbeat", daemon=True)
        self._thread.start()

    def abort_all(self, message: str, status: int) -> NoReturn:
        """Make every process exit with this message and status; the first abort posted wins."""
        self._post_abort(message, status)
        while True:  # the heartbeat thread ends the process
            time.sleep(self._interval)

    def wait_for_abort(self) -> None:
        """Wait as long as it takes to detect a lost process; does not return where one is lost."""
        time.sleep((MAX_MISSED_BEATS + 3) * self._interval)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _beat_loop(self) -> None:
        last_beats: dict[str, str] = {}
        missed = dict.fromkeys(map(str, range(len(self._process_names))), 0)
        while not self._stop.wait(self._interval):
            try:
                self._client.key_value_increment(f"{KEY_PREFIX}/{self._index}", 1)
                beats = {
                    key.rpartition("/")[2]: value
                    for key, value in self._client.key_value_dir_get(f"{KEY_PREFIX}/")
                }
            except jax.errors.JaxRuntimeError:
                _exit_now(
                    f"{self._process_names[0]}, the coordinator, cannot be reached",
                    EXIT_PROCESS_LOST,
                )
            if ABORT_KEY in beats:
                if self._index == 0:  # the others read the message through this process
                    time.sleep(3 * self._interval)
                _exit_now(**json.loads(beats[ABORT_KEY]))
            missed = {
                p: 0 if beats.get(p) != last_beats.get(p) else n + 1 for p, n in missed.items()
            }
            last_beats = beats
            lost = [self._process_names[int(p)] for p, n in missed.items() if n >= MAX_MISSED_BEATS]
            if lost:
                self._post_abort(
                    f"{' and '.join(lost)} has not been heard of for {self._timeout:g} s",
                    EXIT_PROCESS_LOST,
                )

    def _post_abort(self, message: str, status: int) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # another process posted first
            self._client.key_value_set(
                f"{KEY_PREFIX}/{ABORT_KEY}", json.dumps({"message": message, "status": status})
            )


def exit_on_sigabrt(reason: str) -> None:
    """Exit with our message where jaxlib aborts this process, from any of its threads.

    It does so when the coordinator is gone or processes never started, without calling into Python;
    its `missed_heartbeat_callback` takes no Python function.
    """
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(
        lambda _: _exit_now(
            f"jaxlib ended this process (its reason is above), {reason}", EXIT_PROCESS_LOST
        )
    )
    _HANDLERS.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def _exit_now(message: str, status: int) -> NoReturn:
    """End this process at once: an orderly exit would wait for the lost processes."""
    advice = (
        "; start all processes again, and they resume from the last checkpoint"
        if status == EXIT_PROCESS_LOST
        else ""
    )
    print(f"error: {message}{advice}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)

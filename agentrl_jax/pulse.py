"""`Pulse`: every process of a run tells the others that it lives; where one is gone, all leave with the same last word."""

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

PLACE = "agentrl/pulse"
BEATS = 10  # that a process may miss
LOST = os.EX_TEMPFAIL  # the exit status of a run that lost a process: start it again

_HANDLERS: list[Any] = []  # C calls them: they must outlive their making


class Pulse:
    """A thread that beats through the coordination service and listens to the others.

    It counts its own beats, no clock: where a whole machine was paused, nobody is missed.
    """

    def __init__(self, client: Any, index: int, names: Sequence[str], silence: float) -> None:
        """`names` says who the processes are; one that is not heard of for `silence` seconds is gone."""
        self._client, self._index, self._names, self._beat = client, index, names, silence / BEATS
        self._silence = silence
        self._stop = threading.Event()
        at_abort(f"most likely because {names[0]} is gone")
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def end(self, message: str, status: int) -> NoReturn:
        """Tell every process to leave with this message and exit status, and leave; the first to speak is the one who is heard."""
        self._tell(message, status)
        while True:  # the thread ends the process
            time.sleep(self._beat)

    def wait_for_verdict(self) -> None:
        """As long as it takes to find out that another process is gone; does not return where one is."""
        time.sleep((BEATS + 3) * self._beat)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        heard: dict[str, str] = {}
        missed = dict.fromkeys(map(str, range(len(self._names))), 0)
        while not self._stop.wait(self._beat):
            try:
                self._client.key_value_increment(f"{PLACE}/{self._index}", 1)
                found = {key.rpartition("/")[2]: value for key, value in self._client.key_value_dir_get(f"{PLACE}/")}
            except jax.errors.JaxRuntimeError:
                _leave(f"{self._names[0]}, which the others speak through, cannot be reached", LOST)
            if "end" in found:
                if self._index == 0:  # the others hear of it through this process
                    time.sleep(3 * self._beat)
                _leave(**json.loads(found["end"]))
            missed = {p: 0 if found.get(p) != heard.get(p) else n + 1 for p, n in missed.items()}
            heard = found
            gone = [self._names[int(p)] for p, n in missed.items() if n >= BEATS]
            if gone:
                self._tell(f"{' and '.join(gone)} has not been heard of for {self._silence:g} s", LOST)

    def _tell(self, message: str, status: int) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # where somebody else spoke first
            self._client.key_value_set(f"{PLACE}/end", json.dumps({"message": message, "status": status}))


def at_abort(why: str) -> None:
    """Have the last word where jaxlib aborts this process, from any of its threads and without a word to Python.

    So it does when the coordinator is gone or processes never came; its `missed_heartbeat_callback` takes no Python function.
    """
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: _leave(f"jaxlib ended this process (its reason is above), {why}", LOST))
    _HANDLERS.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def _leave(message: str, status: int) -> NoReturn:
    """End this process at once: an orderly end would wait for those who are gone."""
    again = "; start all processes again, and they go on from the last checkpoint" if status == LOST else ""
    print(f"error: {message}{again}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)

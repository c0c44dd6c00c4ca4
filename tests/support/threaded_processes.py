"""The processes of a run as threads of this one, which count the bytes that they exchange."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentrl_jax.distributed.process_group import ProcessGroup

TIMEOUT = 600  # seconds, on a busy machine; a process that fails ends the wait of all


class ThreadGroup(ProcessGroup):
    """A process group whose processes are threads of this one."""

    def __init__(self, index: int, count: int, barrier: threading.Barrier, board: list[Any]):
        super().__init__(index)
        self.count, self._barrier, self._board = count, barrier, board
        self.sent = self.received = 0  # bytes
        self.labels: list[str] = []  # of the exchanges

    def all_gather_bytes(self, label: str, value: bytes) -> list[bytes]:
        self._board[self.index] = label, value
        self._barrier.wait(TIMEOUT)
        labels, values = zip(*self._board)
        assert set(labels) == {label}, labels
        self._barrier.wait(TIMEOUT)
        self.labels.append(label)
        self.sent += len(value)
        self.received += sum(map(len, values)) - len(value)
        return list(values)


def run_processes(
    count: int, run: Callable[[ThreadGroup], Any]
) -> tuple[list[Any], list[ThreadGroup]]:
    """What `run` returns in each of the processes, and their groups.

    Raises:
        BaseException: what the first process to fail raised; the others' waits only end by it.
    """
    failures: list[BaseException] = []
    barrier, board = threading.Barrier(count), [None] * count
    groups = [ThreadGroup(index, count, barrier, board) for index in range(count)]

    def guarded(group: ThreadGroup) -> Any:
        try:
            return run(group)
        except BaseException as error:
            failures.append(error)
            barrier.abort()  # or the others would wait for it

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(guarded, groups))
    if failures:
        raise failures[0]
    return results, groups

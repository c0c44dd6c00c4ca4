"""`ProcessGroup`: the processes of a run, with an all-gather of host data and a common exit."""

import contextlib
import json
import math
import os
import socket
import traceback
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import jax
from orbax.checkpoint import multihost

from agentrl_jax.distributed.heartbeat import EXIT_PROCESS_LOST, Heartbeat, exit_on_sigabrt
from agentrl_jax.distributed.jax_internals import cluster_size
from agentrl_jax.errors import Interrupted, ProcessMissing, UserError
from agentrl_jax.timeouts import Timeouts

T = TypeVar("T")
KEY_PREFIX = "agentrl/all_gather"
INIT_TIMEOUT = 300  # seconds within which all processes must have started


class ProcessGroup:
    """This process among those of the run; `ProcessGroup()` is a group of one.

    All processes must make the same calls in the same order; in a group of one they return at once.
    As a context manager it ends the processes together: after an error in one of them, the others
    exit with its message.
    """

    def __init__(
        self, index: int = 0, count: int = 1, client: Any = None, timeouts: Timeouts | None = None
    ) -> None:
        """`client` is that of JAX's coordination service; a group of one needs none."""
        self.index, self.count = index, count
        self._client, self._timeouts = client, timeouts or Timeouts()
        self._num_gathers = 0
        self._process_names = [f"process {p}" for p in range(count)]
        self._heartbeat: Heartbeat | None = None
        if count > 1:
            self._process_names = self.all_gather(
                "the start", f"process {index} (pid {os.getpid()} on {socket.gethostname()})"
            )
            self._heartbeat = Heartbeat(
                client, index, self._process_names, self._timeouts.heartbeat
            )

    @property
    def is_coordinator(self) -> bool:
        """Whether this is process 0, which writes the files that are written once."""
        return self.index == 0

    def local_items(self, items: Sequence[T]) -> list[T]:
        """This process's round-robin share of `items`: every `count`-th."""
        return list(items[self.index :: self.count])

    def interleave(self, parts: Sequence[Sequence[T]]) -> list[T]:
        """The inverse of `local_items`: [0, 2, 4], [1, 3] -> [0, 1, 2, 3, 4]."""
        longest = max(map(len, parts))
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def all_gather(self, label: str, value: Any) -> list[Any]:
        """The values of all processes, JSON data, in process order; see `all_gather_bytes`."""
        if self.count == 1:
            return [value]
        encoded = json.dumps(value).encode()
        return [json.loads(data) for data in self.all_gather_bytes(label, encoded)]

    def all_gather_bytes(self, label: str, value: bytes) -> list[bytes]:
        """The values of all processes, in process order; takes a few milliseconds.

        Args:
            label: names the exchange in error messages; the same on all processes.
            value: what this process contributes; the sizes may differ.

        Raises:
            ProcessMissing: a process did not call this within `timeouts.barrier` seconds, or called
                it with another label; the message names it.
        """
        if self.count == 1:
            return [value]
        key_prefix, self._num_gathers = f"{KEY_PREFIX}/{self._num_gathers}", self._num_gathers + 1
        self._client.key_value_set_bytes(
            f"{key_prefix}/{self.index}", label.encode() + b"\n" + value
        )
        barrier_error = None
        try:
            self._client.wait_at_barrier(KEY_PREFIX, int(1000 * self._timeouts.barrier))
        except jax.errors.JaxRuntimeError as error:
            barrier_error = error
        messages = {
            int(key.rpartition("/")[2]): message
            for key, message in self._client.key_value_dir_get_bytes(f"{key_prefix}/")
        }
        missing = [self._process_names[p] for p in range(self.count) if p not in messages]
        if barrier_error or missing:
            names = " and ".join(missing) if missing else "some processes"
            raise ProcessMissing(
                f"{names} did not reach {label!r} within {self._timeouts.barrier:g} s"
            ) from barrier_error
        if self._num_gathers > 1:  # every process is here, so all have read the previous messages
            self._client.key_value_delete(f"{KEY_PREFIX}/{self._num_gathers - 2}/{self.index}")
        labels, values = zip(*(messages[p].split(b"\n", 1) for p in range(self.count)))
        for p, other_label in enumerate(labels):
            if other_label != label.encode():
                raise ProcessMissing(
                    f"{self._process_names[p]} is at {other_label.decode()!r} "
                    f"while {self._process_names[self.index]} is at {label!r}"
                )
        return list(values)

    def barrier(self, label: str) -> None:
        """Wait until all processes are here."""
        self.all_gather(label, None)

    @contextlib.contextmanager
    def coordinator_first(self, label: str) -> Iterator[None]:
        """Run the block on process 0 first, then on the others, which can read what it wrote."""
        if not self.is_coordinator:
            self.barrier(label)
        yield
        if self.is_coordinator:
            self.barrier(label)

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._heartbeat is None:
            return
        if error is None or isinstance(error, Interrupted):  # which all processes agreed on
            self.barrier("the end")
            self._heartbeat.close()
            return
        if isinstance(error, ProcessMissing):
            self._heartbeat.abort_all(str(error), EXIT_PROCESS_LOST)
        if isinstance(error, UserError):
            self._heartbeat.abort_all(f"{self._process_names[self.index]}: {error}", 2)
        traceback.print_exception(error)
        # A collective fails where another process died: then that is the message to exit with.
        self._heartbeat.wait_for_abort()
        self._heartbeat.abort_all(f"{self._process_names[self.index]}: {error or kind}", 1)


def initialize(
    coordinator: str = "",
    processes: int = 0,
    process_id: int = -1,
    timeouts: Timeouts | None = None,
) -> ProcessGroup:
    """Join the run's process group; to be called before JAX initializes its devices.

    Args:
        coordinator: host:port of process 0. Empty: the processes are those of the cluster that JAX
            detects (TPU pod, Slurm, GKE, Open MPI), or this one alone.
        processes: their number; 1 is a group of one on any cluster.
        process_id: this process's index.
        timeouts: `barrier` and `heartbeat` are used.

    Raises:
        UserError: the arguments do not fit together, or not all processes started in time.
    """
    limits = timeouts or Timeouts()
    is_given = (coordinator != "", processes > 1, process_id >= 0)
    if any(is_given) and not all(is_given):
        raise UserError(
            "processes started by hand need all of --coordinator=host:port, "
            "--processes=2 or more and --process_id"
        )
    if all(is_given) and process_id >= processes:
        raise UserError(f"--process_id={process_id} must be below --processes={processes}")
    if processes == 1 or (not any(is_given) and cluster_size() == 1):
        return ProcessGroup()
    address = (
        {"coordinator_address": coordinator, "num_processes": processes, "process_id": process_id}
        if all(is_given)
        else {}
    )
    # JAX's own heartbeat aborts without a message, so ours must come first.
    heartbeat_timeout = max(600, int(10 * limits.heartbeat))
    init_timeout = math.ceil(min(limits.barrier, INIT_TIMEOUT))
    exit_on_sigabrt(f"most likely because not all processes started within {init_timeout} s")
    try:
        jax.distributed.initialize(
            **address,
            heartbeat_timeout_seconds=heartbeat_timeout,
            initialization_timeout=init_timeout,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"not all processes started: {str(error).splitlines()[0]}") from error
    # The coordination service's key-value store and barriers. JAX's own collectives cannot replace
    # them: they run on the devices, without a timeout, and hang where a process is missing.
    client = multihost.get_jax_distributed_client()
    return ProcessGroup(jax.process_index(), jax.process_count(), client, limits)

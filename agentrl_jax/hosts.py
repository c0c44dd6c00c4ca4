"""`Hosts`: the processes of a run: who am I, what do the others say, who is missing."""

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
from jax._src import clusters, distributed

from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import HostMissing, Interrupted, UserError
from agentrl_jax.pulse import LOST, Pulse, at_abort

T = TypeVar("T")
PLACE = "agentrl/said"
STARTED = 300  # seconds within which all processes must be there


class Hosts:
    """This process among those of the run. `Hosts()` is alone: then whatever is asked here is answered at once.

    All processes must ask the same questions in the same order. As a context manager it ends them together: after an error
    of one, the others leave with that error for their last word.
    """

    def __init__(self, index: int = 0, count: int = 1, client: Any = None, deadlines: Deadlines | None = None) -> None:
        """`client` is jax.distributed's."""
        self.index, self.count = index, count
        self._client, self._deadlines = client, deadlines or Deadlines()
        self._asked = 0
        self._names = [f"process {p}" for p in range(count)]
        self._pulse: Pulse | None = None
        if count > 1:
            self._names = self.gather("the start", f"process {index} (pid {os.getpid()} on {socket.gethostname()})")
            self._pulse = Pulse(client, index, self._names, self._deadlines.silence)

    @property
    def leads(self) -> bool:
        """Whether this is process 0, which writes what is written once."""
        return self.index == 0

    def mine(self, of: Sequence[T]) -> list[T]:
        """This process's share of what all have: every `count`-th."""
        return list(of[self.index :: self.count])

    def merged(self, shares: Sequence[Sequence[T]]) -> list[T]:
        """The inverse of `mine`: [0, 2, 4], [1, 3] -> [0, 1, 2, 3, 4]."""
        longest = max(map(len, shares))
        return [share[i] for i in range(longest) for share in shares if i < len(share)]

    def gather(self, what: str, value: Any) -> list[Any]:
        """What each process says, JSON data, in their order. `what` names the question for errors. See `gather_bytes`."""
        return [value] if self.count == 1 else [json.loads(said) for said in self.gather_bytes(what, json.dumps(value).encode())]

    def gather_bytes(self, what: str, value: bytes) -> list[bytes]:
        """What each process says, in their order; a few milliseconds.

        Raises HostMissing, naming them, where some do not answer within `deadlines.hosts` seconds or answer something else.
        """
        if self.count == 1:
            return [value]
        place, self._asked = f"{PLACE}/{self._asked}", self._asked + 1
        self._client.key_value_set_bytes(f"{place}/{self.index}", what.encode() + b"\n" + value)
        late = None
        try:
            self._client.wait_at_barrier(PLACE, int(1000 * self._deadlines.hosts))
        except jax.errors.JaxRuntimeError as error:
            late = error
        said = {int(key.rpartition("/")[2]): value for key, value in self._client.key_value_dir_get_bytes(f"{place}/")}
        missing = [self._names[p] for p in range(self.count) if p not in said]
        if late or missing:
            who = f"{' and '.join(missing)} did" if missing else "some processes did"
            raise HostMissing(f"{who} not come to {what!r} within {self._deadlines.hosts:g} s") from late
        if self._asked > 1:  # all are here, so nobody reads the last answers any more
            self._client.key_value_delete(f"{PLACE}/{self._asked - 2}/{self.index}")
        questions, answers = zip(*(said[p].split(b"\n", 1) for p in range(self.count)))
        for p, question in enumerate(questions):
            if question != what.encode():
                raise HostMissing(f"{self._names[p]} is at {question.decode()!r} while {self._names[self.index]} is at {what!r}")
        return list(answers)

    def barrier(self, what: str) -> None:
        """Wait until all processes are here."""
        self.gather(what, None)

    @contextlib.contextmanager
    def leader_first(self, what: str) -> Iterator[None]:
        """Process 0 runs the block first and the others after it, who find what it made."""
        if not self.leads:
            self.barrier(what)
        yield
        if self.leads:
            self.barrier(what)

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pulse is None:
            return
        if error is None or isinstance(error, Interrupted):  # which they agreed on
            self.barrier("the end")
            self._pulse.close()
            return
        if isinstance(error, HostMissing):
            self._pulse.end(str(error), LOST)
        if isinstance(error, UserError):
            self._pulse.end(f"{self._names[self.index]}: {error}", 2)
        traceback.print_exception(error)
        self._pulse.wait_for_verdict()  # a collective fails where another process died: then that is what is to be told
        self._pulse.end(f"{self._names[self.index]}: {error or kind}", 1)


def join(coordinator: str = "", processes: int = 0, process_id: int = -1, deadlines: Deadlines | None = None) -> Hosts:
    """Become one of the run's processes, by `jax.distributed.initialize`; to be called before JAX looks at its devices.

    Without an address they are those that the cluster tells of (TPU pod, Slurm, GKE, Open MPI), or else this process alone;
    `processes` 1 is alone anywhere. Raises UserError where the arguments do not go together or not all processes come.
    """
    limits = deadlines or Deadlines()
    given = (coordinator != "", processes > 1, process_id >= 0)
    if any(given) and not all(given):
        raise UserError("processes started by hand need all of --coordinator=host:port, --processes=2 or more and --process_id")
    if all(given) and process_id >= processes:
        raise UserError(f"--process_id={process_id} must be below --processes={processes}")
    if processes == 1 or (not any(given) and _cluster_size() == 1):
        return Hosts()
    named = {"coordinator_address": coordinator, "num_processes": processes, "process_id": process_id} if all(given) else {}
    heartbeat = max(600, int(10 * limits.silence))  # jax's own, by the clock, and it aborts: ours comes first
    try:
        patience = math.ceil(min(limits.hosts, STARTED))
        at_abort(f"most likely because not all processes came together within {patience} s")
        jax.distributed.initialize(**named, heartbeat_timeout_seconds=heartbeat, initialization_timeout=patience)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"not all processes came together: {str(error).splitlines()[0]}") from error
    return Hosts(jax.process_index(), jax.process_count(), distributed.global_state.client, limits)


def _cluster_size() -> int:
    """How many processes the cluster says there are; 1 where there is no cluster that JAX knows."""
    known = (env for env in clusters.ClusterEnv._cluster_types if not env.opt_in_only_method)
    found = next((env for env in known if env.is_env_present()), None)
    return 1 if found is None else found.get_process_count()

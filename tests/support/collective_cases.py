"""One process of a group that all-gathers, or that fails in some way.

python collective_cases.py CASE --coordinator=... --processes=... --process_id=...
"""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
from absl import flags
from jax.sharding import NamedSharding, PartitionSpec

import agentrl_jax.launch.train  # noqa: F401  its flags
from agentrl_jax.distributed.process_group import ProcessGroup, initialize
from agentrl_jax.timeouts import Timeouts


def check_gather(process_group: ProcessGroup) -> None:
    """Checks every exchange, and prints when the block of `coordinator_first` ran."""
    processes = range(process_group.count)
    for i in range(3):
        gathered = process_group.all_gather(f"gather {i}", {"by": process_group.index, "i": i})
        assert gathered == [{"by": p, "i": i} for p in processes]
    large = bytes([process_group.index]) * 20_000_000  # more than the default gRPC message size
    gathered_bytes = process_group.all_gather_bytes("large", large)
    assert [data[0] for data in gathered_bytes] == list(processes)
    with process_group.coordinator_first("a file"):
        print(f"process {process_group.index} at {time.time()}")
        time.sleep(0.2)
    parts = process_group.all_gather("items", process_group.local_items(range(5)))
    assert process_group.interleave(parts) == list(range(5))


def miss_barrier(process_group: ProcessGroup) -> None:
    if process_group.index == 1:
        time.sleep(60)
    process_group.barrier("the bridge")


def mismatch_barrier(process_group: ProcessGroup) -> None:
    process_group.barrier(f"bridge {process_group.index}")


def hang_process(process_group: ProcessGroup) -> None:
    mesh = jax.make_mesh((process_group.count,), ("data",))
    ones = jax.make_array_from_callback(
        (process_group.count,), NamedSharding(mesh, PartitionSpec("data")), lambda _: jnp.ones(1)
    )
    print(float(jax.jit(jnp.sum)(ones)), flush=True)
    if process_group.index == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # like a process that hangs: its connections stay open
    print(float(jax.jit(lambda x: jnp.sum(x + 1))(ones)), flush=True)


def raise_error(process_group: ProcessGroup) -> None:
    if process_group.index == 1:
        raise RuntimeError("the disk is on fire")
    process_group.barrier("the end of the day")


CASES = {
    "gather": check_gather,
    "miss_barrier": miss_barrier,
    "mismatch_barrier": mismatch_barrier,
    "hang": hang_process,
    "raise": raise_error,
}


def main() -> None:
    _, case, *_ = flags.FLAGS(sys.argv)
    f = flags.FLAGS
    timeouts = Timeouts(barrier=4.0, heartbeat=3.0)
    with initialize(f.coordinator, f.processes, f.process_id, timeouts) as process_group:
        CASES[case](process_group)


if __name__ == "__main__":
    main()

"""One process of several that asks the others something, or fails them.

python questions.py answered|late|astray|stopped|raises --coordinator=... --processes=... --process_id=...
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
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.hosts import Hosts, join


def answered(hosts: Hosts) -> None:
    for i in range(3):
        assert hosts.gather(f"question {i}", {"by": hosts.index, "i": i}) == [{"by": p, "i": i} for p in range(hosts.count)]
    big = bytes([hosts.index]) * 20_000_000  # more than most messages may have
    assert [said[0] for said in hosts.gather_bytes("big", big)] == list(range(hosts.count))
    with hosts.leader_first("a file"):
        print(f"process {hosts.index} at {time.time()}")
        time.sleep(0.2)
    assert hosts.merged(hosts.gather("shares", hosts.mine(range(5)))) == list(range(5))


def late(hosts: Hosts) -> None:
    if hosts.index == 1:
        time.sleep(60)
    hosts.barrier("the bridge")


def astray(hosts: Hosts) -> None:
    hosts.barrier(f"bridge {hosts.index}")


def stopped(hosts: Hosts) -> None:
    mesh = jax.make_mesh((hosts.count,), ("data",))
    ones = jax.make_array_from_callback((hosts.count,), NamedSharding(mesh, PartitionSpec("data")), lambda _: jnp.ones(1))
    print(float(jax.jit(jnp.sum)(ones)), flush=True)
    if hosts.index == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # as a host that hangs: its connections stay open
    print(float(jax.jit(lambda x: jnp.sum(x + 1))(ones)), flush=True)


def raises(hosts: Hosts) -> None:
    if hosts.index == 1:
        raise RuntimeError("the disk is on fire")
    hosts.barrier("the end of the day")


def main() -> None:
    _, question, *_ = flags.FLAGS(sys.argv)
    f = flags.FLAGS
    with join(f.coordinator, f.processes, f.process_id, Deadlines(hosts=4.0, silence=3.0)) as hosts:
        {"answered": answered, "late": late, "astray": astray, "stopped": stopped, "raises": raises}[question](hosts)


if __name__ == "__main__":
    main()

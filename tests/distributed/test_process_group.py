"""The all-gather of a process group, and how its processes end together."""

import os
import re
import signal
import time

import pytest
from support.processes import SUPPORT, assert_success, start_processes, wait_for_processes

from agentrl_jax.distributed.jax_internals import cluster_size
from agentrl_jax.distributed.process_group import ProcessGroup, initialize
from agentrl_jax.errors import UserError

PROGRAM = SUPPORT / "collective_cases.py"


def run_case(case: str, count: int = 2) -> list[tuple[int, str, str]]:
    return wait_for_processes(start_processes(count, [PROGRAM, case]), 120)


def last_line(errors: str) -> str:
    return errors.strip().splitlines()[-1]


def test_a_group_of_one_gathers_its_own_value():
    process_group = ProcessGroup()
    assert process_group.is_coordinator
    assert process_group.all_gather("anything", (1, 2)) == [(1, 2)]
    assert process_group.all_gather_bytes("x", b"y") == [b"y"]
    assert process_group.local_items("abc") == list("abc")
    assert process_group.interleave([[1, 2]]) == [1, 2]
    with process_group, process_group.coordinator_first("a file"):
        process_group.barrier("here")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_interleaving_local_items_gives_all_items_in_order(count: int):
    for n in range(12):
        parts = [member_of(p, count).local_items(range(n)) for p in range(count)]
        assert ProcessGroup().interleave(parts) == list(range(n))


def member_of(index: int, count: int) -> ProcessGroup:
    """A process of a group that it cannot reach."""
    process_group = ProcessGroup(index)
    process_group.count = count
    return process_group


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("host:1", 2), "need all of"),
        (("", 2, 0), "need all of"),
        (("host:1", 1, 0), "need all of"),
        (("host:1", 2, 2), "process_id=2 must be below --processes=2"),
    ],
)
def test_processes_started_by_hand_need_all_arguments(arguments: tuple, message: str):
    with pytest.raises(UserError, match=message):
        initialize(*arguments)


def test_a_process_without_address_or_cluster_is_a_group_of_one():
    assert initialize().count == initialize(processes=1).count == 1


def test_the_detected_cluster_has_the_size_that_slurm_reports(monkeypatch: pytest.MonkeyPatch):
    variables = {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "node",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for count in (1, 3):
        monkeypatch.setenv("SLURM_NTASKS", str(count))
        assert cluster_size() == count


def test_two_processes_gather_in_order():
    assert_success(start_processes(2, [PROGRAM, "gather"]))


@pytest.mark.slow
def test_four_processes_gather_in_order_and_the_coordinator_runs_first():
    results = run_case("gather", 4)
    assert [status for status, _, _ in results] == [0] * 4, results
    times = [
        float(next(line for line in output.splitlines() if " at " in line).rpartition(" ")[2])
        for _, output, _ in results
    ]
    assert min(times[1:]) - times[0] >= 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "status", "message"),
    [
        (
            "miss_barrier",
            os.EX_TEMPFAIL,
            r"process 1 \(pid \d+ on \S+\) did not reach 'the bridge' within 4 s",
        ),
        (
            "mismatch_barrier",
            os.EX_TEMPFAIL,
            r"process \d \(pid \d+ on \S+\) is at 'bridge \d' "
            r"while process \d .* is at 'bridge \d'",
        ),
        ("raise", 1, r"process 1 \(pid \d+ on \S+\): the disk is on fire"),
    ],
)
def test_all_processes_exit_with_the_message_of_the_one_that_failed(
    case: str, status: int, message: str
):
    results = run_case(case)
    assert [exit_status for exit_status, _, _ in results] == [status] * 2, results
    assert len({last_line(errors) for _, _, errors in results}) == 1
    assert re.search(message, last_line(results[0][2]))


@pytest.mark.slow
def test_processes_exit_where_another_one_hangs_in_a_collective():
    processes = start_processes(4, [PROGRAM, "hang"])
    start = time.monotonic()
    others = [process for p, process in enumerate(processes) if p != 1]
    results = wait_for_processes(others, 100)
    assert processes[1].poll() is None and time.monotonic() - start < 90  # it is still stopped
    processes[1].send_signal(signal.SIGKILL)
    wait_for_processes(processes[1:2])
    message = (
        r"process 1 \(pid \d+ on \S+\) has not been heard of for 3 s; start all processes again"
    )
    for status, _, errors in results:
        assert status == os.EX_TEMPFAIL, errors
        assert re.search(message, last_line(errors))


@pytest.mark.slow
def test_a_process_exits_where_another_one_never_starts():
    process, never_started = start_processes(
        2, [PROGRAM, "gather"], process_flags=[[], ["--no_such_flag"]]
    )
    ((status, _, errors),) = wait_for_processes([process], 100)
    wait_for_processes([never_started])
    assert status == os.EX_TEMPFAIL, errors
    assert "not all processes started within 4 s" in last_line(errors), errors

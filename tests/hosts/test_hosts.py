"""What processes ask each other, and how they end together."""

import os
import signal
import time

import pytest
from many import HERE, finish, start, succeed

from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts, join


def asked(question: str, count: int = 2) -> list[tuple[int, str, str]]:
    return finish(start(count, [HERE / "questions.py", question]), 120)


def last_line(errors: str) -> str:
    return errors.strip().splitlines()[-1]


def test_a_process_alone_is_answered_at_once():
    hosts = Hosts()
    assert hosts.leads and hosts.gather("anything", (1, 2)) == [(1, 2)] and hosts.gather_bytes("x", b"y") == [b"y"]
    assert hosts.mine("abc") == list("abc") and hosts.merged([[1, 2]]) == [1, 2]
    with hosts, hosts.leader_first("a file"):
        hosts.barrier("here")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_what_is_dealt_comes_back_in_order(count: int):
    for n in range(12):
        assert Hosts().merged([Hosts.mine(_dealer(p, count), range(n)) for p in range(count)]) == list(range(n))


def _dealer(index: int, count: int) -> Hosts:
    hosts = Hosts(index)
    hosts.count = count
    return hosts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("host:1", 2), "need all of"),
        (("", 2, 0), "need all of"),
        (("host:1", 1, 0), "need all of"),
        (("host:1", 2, 2), "process_id=2 must be below --processes=2"),
    ],
)
def test_processes_started_by_hand_are_told_all_or_nothing(arguments: tuple, message: str):
    with pytest.raises(UserError, match=message):
        join(*arguments)


def test_without_an_address_or_a_cluster_a_process_is_alone():
    assert join().count == join(processes=1).count == 1


def test_several_processes_answer_each_other_in_order():
    succeed(start(2, [HERE / "questions.py", "answered"]))


@pytest.mark.slow
def test_four_processes_answer_each_other_and_the_leader_is_first():
    results = asked("answered", 4)
    assert [status for status, _, _ in results] == [0] * 4, results
    times = [float(next(line for line in out.splitlines() if " at " in line).rpartition(" ")[2]) for _, out, _ in results]
    assert min(times[1:]) - times[0] >= 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "status", "message"),
    [
        ("late", os.EX_TEMPFAIL, r"process 1 \(pid \d+ on \S+\) did not come to 'the bridge' within 4 s"),
        ("astray", os.EX_TEMPFAIL, r"process \d \(pid \d+ on \S+\) is at 'bridge \d' while process \d .* is at 'bridge \d'"),
        ("raises", 1, r"process 1 \(pid \d+ on \S+\): the disk is on fire"),
    ],
)
def test_who_does_not_come_is_named_and_all_leave_with_that(question: str, status: int, message: str):
    results = asked(question)
    assert [ended for ended, _, _ in results] == [status] * 2, results
    assert len({last_line(errors) for _, _, errors in results}) == 1
    assert_matches(message, last_line(results[0][2]))


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(text)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_a_host_that_hangs_in_a_collective_is_left_behind(count: int):
    processes = start(count, [HERE / "questions.py", "stopped"])
    began = time.monotonic()
    others = [process for p, process in enumerate(processes) if p != 1]
    results = finish(others, 100)
    assert processes[1].poll() is None and time.monotonic() - began < 90  # it is stopped still
    processes[1].send_signal(signal.SIGKILL)
    finish(processes[1:2])
    for status, _, errors in results:
        assert status == os.EX_TEMPFAIL, errors
        assert_matches(r"process 1 \(pid \d+ on \S+\) has not been heard of for 3 s; start all processes again", last_line(errors))


@pytest.mark.slow
def test_who_never_comes_at_all_is_an_error_too():
    process, never = start(2, [HERE / "questions.py", "answered"], own=[[], ["--no_such_flag"]])
    ((status, _, errors),) = finish([process], 100)
    finish([never])
    assert status == os.EX_TEMPFAIL and "not all processes came together within 4 s" in last_line(errors), errors

"""The scheduler's queue, and the order of copies between slots."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.engine import GenerationFuture
from agentrl_jax.inference.device_state import copy_phase, group_commuting_copies
from agentrl_jax.inference.kv_slots import KVSlot, SlotCopy, SlotTable
from agentrl_jax.inference.request import Request
from agentrl_jax.inference.scheduler import Scheduler
from agentrl_jax.trajectories import Call, Sampling

ROWS = 3  # per shard; as many parked slots


def make_request(number: int, parent: Call | None = None) -> Request:
    ids = np.full(20, number, np.int32)
    key = np.zeros(2, np.uint32)
    sampling = Sampling(budget=4)
    return Request(ids, sampling, (number,), key, parent, (), None, GenerationFuture())


def make_scheduler(slot_table: SlotTable) -> Scheduler:
    return Scheduler(
        slot_table,
        attention_lengths=[64],
        prefill_chunk=16,
        num_shards=1,
        prefill_rows=(ROWS, ROWS),
        batching_delay=0.0,
    )


def test_requests_wait_in_order_and_only_new_ones_are_tried_in_their_parents_row():
    slot_table = SlotTable(1, ROWS, 0)
    scheduler, requests = make_scheduler(slot_table), [make_request(i) for i in range(30)]
    for request in requests:
        scheduler.add(request)
    admitted: list[Request] = []
    with mock.patch.object(slot_table, "reuse_parent", wraps=slot_table.reuse_parent) as tried:
        while len(admitted) < len(requests):
            scheduler.admit(evict=True)
            running = [(slot, request) for _, slot, request in slot_table.active]
            assert len(running) == ROWS
            admitted += [request for _, request in running]
            for slot, _ in running:
                slot_table.abandon(slot)
    assert [id(x) for x in admitted] == [id(x) for x in requests]
    assert tried.call_count == len(requests)  # and not once for each time that they waited


def test_a_request_that_was_cancelled_before_it_was_admitted_gets_no_row():
    slot_table = SlotTable(1, ROWS, 0)
    scheduler, requests = make_scheduler(slot_table), [make_request(i) for i in range(2)]
    for request in requests:
        scheduler.add(request)
    assert requests[0].future.cancel()
    scheduler.admit(evict=False)
    assert [request for *_, request in slot_table.active] == requests[1:]


SLOTS = st.tuples(st.integers(0, 1), st.integers(0, 2 * ROWS - 1))  # shard, index
COPIES = st.lists(st.tuples(SLOTS, SLOTS), max_size=24)


@settings(max_examples=300, deadline=None)
@given(COPIES)
def test_copies_made_phase_by_phase_are_those_made_in_their_order(
    pairs: list[tuple[tuple[int, int], tuple[int, int]]],
):
    slots = {(shard, i): KVSlot(shard, i) for shard in range(2) for i in range(2 * ROWS)}
    copies = [
        SlotCopy(slots[shard, source], slots[shard, target])
        for (shard, source), (_, target) in pairs
        if source != target and (source < ROWS or target < ROWS)  # none between parked slots
    ]
    in_order = {slot: name for name, slot in slots.items()}
    for copy in copies:
        in_order[copy.target] = in_order[copy.source]
    grouped = {slot: name for name, slot in slots.items()}
    for group in group_commuting_copies(copies, ROWS):
        for phase in range(3):
            of_phase = [copy for copy in group if copy_phase(copy, ROWS) == phase]
            for shard in range(2):
                assert sum(copy.target.shard == shard for copy in of_phase) <= ROWS
            for copy in of_phase:
                grouped[copy.target] = grouped[copy.source]
    assert grouped == in_order


@pytest.mark.parametrize("count", [1, ROWS, ROWS + 1])
def test_copies_that_commute_are_one_program_until_a_phase_is_full(count: int):
    rows = [KVSlot(0, i) for i in range(ROWS)]
    parked = [KVSlot(0, ROWS + i) for i in range(ROWS + 1)]
    copies = [SlotCopy(rows[i % ROWS], parked[i]) for i in range(count)]
    assert len(group_commuting_copies(copies, ROWS)) == (1 if count <= ROWS else 2)

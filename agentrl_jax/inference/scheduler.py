"""`Scheduler`: which requests run in which slots, and which program runs next on which rows."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl_jax.inference.device_state import WIDE_FACTOR
from agentrl_jax.inference.kv_slots import KVSlot, SlotCopy, SlotTable
from agentrl_jax.inference.request import Request
from agentrl_jax.inference.sampling import MAX_FED_TOKENS

ActiveRow = tuple[int, KVSlot, Request]


@dataclass(frozen=True)
class PrefillBatch:
    """The rows of one prefill program."""

    rows: list[ActiveRow]
    attention_length: int
    wide: bool  # which of the two prefill programs

    @property
    def row_chunks(self) -> list[tuple[int, int, Request]]:
        """Row, tokens cached so far, and request."""
        return [(i, slot.num_cached_tokens, request) for i, slot, request in self.rows]


class Scheduler:
    """Admits queued requests and plans programs; the engine's lock guards all but the planning."""

    def __init__(
        self,
        slot_table: SlotTable,
        *,
        attention_lengths: list[int],
        prefill_chunk: int,
        num_shards: int,
        prefill_rows: Sequence[int],
        batching_delay: float,
    ) -> None:
        """`prefill_rows`: rows per shard of the narrow and of the wide prefill program."""
        self.batching_delay = batching_delay
        self.last_event_time = 0.0
        self.last_step_seconds = 0.0
        self._slot_table, self._attention_lengths = slot_table, attention_lengths
        self._prefill_chunk = prefill_chunk
        self._num_shards, self._prefill_rows = num_shards, prefill_rows
        self._arrived: list[Request] = []  # since requests were last admitted
        self._queue: deque[Request] = deque()  # found no row then
        self._pending_copies: list[SlotCopy] = []
        self._mean_arrival_gap = 0.0  # seconds between two requests, a moving average

    @property
    def has_requests(self) -> bool:
        """Whether a request is queued or running."""
        return bool(self._queue or self._arrived or any(self._slot_table.active))

    @property
    def requests(self) -> list[Request]:
        """All that are queued or running."""
        return [*self._queue, *self._arrived, *(request for *_, request in self._slot_table.active)]

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._arrived.append(request)
        gap = min(time.monotonic() - self.last_event_time, self.last_step_seconds)
        self._mean_arrival_gap += (gap - self._mean_arrival_gap) / 8

    def runs_at_once(self, ready: int) -> bool:
        """Whether the next program runs on the `ready` rows, without the replies to calls that have
        just finished.

        Those of n calls take n g seconds, see `batching_wait`: while that costs the rows that are
        ready more than a program, it runs without them.
        """
        return ready * self._mean_arrival_gap >= self.last_step_seconds > 0 < ready

    @property
    def has_queued(self) -> bool:
        """Whether requests wait for a row."""
        return bool(self._queue)

    def batching_wait(self) -> float:
        """Seconds to wait for one more request before the next program; 0: run it now.

        A program takes as long for one row as for all. With k rows ready, a program of C seconds
        and a request every g seconds, one more request makes the program worth (k + 1) / k and
        costs (C + g) / C: so wait while k < C / g, until nothing came for 2 g. A sixteenth of C is
        waited in any case: requests come together where a batch of episodes starts or a decode
        program has finished many calls, but not evenly.
        """
        ready, rows = sum(1 for _ in self._slot_table.active), len(self._slot_table.rows)
        gap, seconds = self._mean_arrival_gap, self.last_step_seconds
        if ready * gap >= seconds or ready == rows:
            return 0.0
        if ready + len(self._queue) >= rows and gap > seconds / 16:
            return 0.0  # queued requests take the rows that wait on their environments
        grace = max(2 * gap if self._slot_table.has_waiting_env else 0.0, seconds / 16)
        deadline = self.last_event_time + min(grace, self.batching_delay)
        return max(0.0, deadline - time.monotonic())

    def admit(self, evict: bool) -> None:
        """Give requests a row: their parent's, a free one, or with `evict` a waiting one.

        Only those that have just arrived are tried in their parent's row, so that the cost does not
        grow with the queue.
        """
        arrived, self._arrived = self._arrived, []
        for request in arrived:
            if not request.future.set_running_or_notify_cancel():
                continue  # cancelled before it was admitted
            # First those that reuse their row: others may evict the rows that are waiting.
            if not self._slot_table.reuse_parent(request):
                self._queue.append(request)
        num_rows = self._slot_table.num_rows(evict) if self._queue else 0
        without_row: list[Request] = []
        while num_rows and self._queue:
            request = self._queue.popleft()
            copies = self._slot_table.admit(request, evict)
            if copies is None:
                without_row.append(request)  # there is none in its parent's shard
            else:
                self._pending_copies += copies
                num_rows -= 1
        self._queue.extendleft(reversed(without_row))

    def take_copies(self) -> list[SlotCopy]:
        """The copies that the admitted requests need, which are then no longer pending."""
        copies, self._pending_copies = self._pending_copies, []
        return copies

    def attention_length(self, length: int) -> int:
        """The shortest compiled attention length for rows of so many tokens."""
        lengths = self._attention_lengths
        return next(n for n in lengths if n >= min(length, lengths[-1]))

    def prefill_batches(self) -> Iterator[PrefillBatch]:
        """The prefill programs of a step, each to be run before the next is asked for.

        They take all but the last token of every prompt; a short rest is left to the decode
        program. Which program works on a row depends on that row alone: another one could change
        its last bits.
        """
        long_rest, short_rest = [], []
        for i, slot, request in self._slot_table.active:
            num_uncached = request.length - 1 - slot.num_cached_tokens
            has_images = request.has_images_from(slot.num_cached_tokens)
            if num_uncached > MAX_FED_TOKENS or has_images:
                is_long = (
                    num_uncached > WIDE_FACTOR // 2 * self._prefill_chunk
                    or request.longest_whole_image > self._prefill_chunk
                )
                (long_rest if is_long else short_rest).append((i, slot, request))
        yield from self._batches(short_rest, wide=False)
        yield from self._batches(long_rest, wide=True)

    def _batches(self, pending: list[ActiveRow], wide: bool) -> Iterator[PrefillBatch]:
        chunk = WIDE_FACTOR * self._prefill_chunk if wide else self._prefill_chunk
        while pending:
            rows = self._rows_of_program(pending, self._prefill_rows[wide])
            cached_after = [
                request.chunk_end(slot.num_cached_tokens, chunk) for _, slot, request in rows
            ]
            yield PrefillBatch(rows, self.attention_length(max(cached_after)), wide)
            for (_, slot, _), num_cached in zip(rows, cached_after):
                slot.num_cached_tokens = num_cached
            pending = [x for x in pending if x[1].num_cached_tokens < x[2].length - 1]

    def _rows_of_program(self, pending: list[ActiveRow], num_rows: int) -> list[ActiveRow]:
        """The first rows of each shard."""
        return [
            x
            for shard in range(self._num_shards)
            for x in [y for y in pending if y[1].shard == shard][:num_rows]
        ]

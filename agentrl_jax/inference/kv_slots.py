"""KV slots: which request runs in which slot of the cache, and what the other slots still hold.

A slot is a row of the cache, on which programs run, or a parked slot, which only stores. Its state
follows from its place and two fields: `request`, which generates in it, and `cached_calls`, the
finished calls whose KV cache it holds, each one a prefix of the next.

    state    place   request  cached_calls  leaves by
    free     any     no       no            `admit` -> working (a row); `_find_slot` -> parked
    working  row     yes      any           `finish` -> waiting; `abandon` -> waiting or free
    waiting  row     no       yes           `reuse_parent` -> working; `release` -> free;
                                            `_find_slot` -> its cache is parked, or evicted: free
    parked   parked  no       yes           `admit` -> its cache moves to a row: free;
                                            `release` -> free
    any                                     `on_new_weights(recompute=True)` drops cached calls

A waiting row belongs to an episode that waits on its environment. A free slot may still hold the
KV cache of a prompt (`prompt_key`), which other requests copy until it is overwritten.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentrl_jax.clock import epoch_seconds
from agentrl_jax.inference.request import Request
from agentrl_jax.inference.sampling import MAX_FED_TOKENS
from agentrl_jax.trajectories import Call


@dataclass(eq=False)
class KVSlot:
    """A row of the cache or a parked slot."""

    shard: int  # of the mesh's data axis
    index: int  # within the shard; parked slots come after the rows
    request: Request | None = None
    # Finished calls, each a prefix of the next, and how many tokens of each are cached.
    cached_calls: list[tuple[Call, int]] = field(default_factory=list)
    num_cached_tokens: int = 0
    prompt_key: bytes | None = None  # the prompt from which its first tokens were prefilled
    last_used: float = 0.0

    @property
    def last_call(self) -> Call | None:
        """The longest of the cached calls."""
        return self.cached_calls[-1][0] if self.cached_calls else None


@dataclass(frozen=True, eq=False)
class SlotCopy:
    """A copy of one slot's KV cache to another slot."""

    source: KVSlot
    target: KVSlot
    after_prefill: bool = False  # the source must be prefilled first


class SlotTable:
    """The states of all slots; it only plans copies, the engine carries them out."""

    def __init__(self, num_shards: int, rows: int, parked_slots: int, first_row: int = 0) -> None:
        """`rows` and `parked_slots` count those of one shard; `first_row` is the first's number."""
        self._rows_per_shard, self._first_row = rows, first_row
        shards = range(num_shards)
        self._shard_rows = [[KVSlot(shard, i) for i in range(rows)] for shard in shards]
        self._free_parked = [
            [KVSlot(shard, rows + i) for i in range(parked_slots)] for shard in shards
        ]
        self.rows = [row for rows in self._shard_rows for row in rows]
        self.parked_slots = [slot for slots in self._free_parked for slot in slots]
        self.counts = {"evictions": 0, "parked": 0, "restored": 0, "copies": 0, "copied_tokens": 0}
        self._slot_of_call: dict[int, KVSlot] = {}  # by the id() of a cached call
        self._slot_of_prompt: dict[bytes, KVSlot] = {}

    @property
    def active(self) -> Iterator[tuple[int, KVSlot, Request]]:
        """The working rows: row number, slot, request."""
        return ((i, row, row.request) for i, row in enumerate(self.rows) if row.request is not None)

    @property
    def has_waiting_env(self) -> bool:
        """Whether some row is waiting on its environment."""
        return any(row.request is None and row.cached_calls for row in self.rows)

    def num_rows(self, evict: bool) -> int:
        """How many requests `admit` can give a row, each in some shard."""
        return sum(row.request is None and (evict or not row.cached_calls) for row in self.rows)

    def row_number(self, slot: KVSlot) -> int:
        """The number of a row among those of all shards, and of a pool's engines before this."""
        return self._first_row + slot.shard * self._rows_per_shard + slot.index

    def reuse_parent(self, request: Request) -> bool:
        """Waiting -> working: run the request in the row that holds its parent, if that is idle."""
        slot = self._slot_of_call.get(id(request.parent))
        if (
            slot is None
            or slot.request is not None
            or slot.last_call is not request.parent
            or self._is_parked(slot)
        ):
            return False
        shared = _shared_prefix_length(request, slot)
        if shared:
            self._assign(slot, request, shared)
        return shared > 0

    def admit(self, request: Request, evict: bool) -> list[SlotCopy] | None:
        """Free -> working: the copies to make first, or None where no row is free.

        With `evict` a waiting row makes room: its cache is parked, or dropped where no parked slot
        is free.
        """
        parent_slot, prompt_slot = self._sources(request)
        preferred = parent_slot or prompt_slot
        candidate = self._find_slot(preferred.shard if preferred else None, evict)
        if candidate is None and parent_slot is None and prompt_slot is not None:
            candidate = self._find_slot(None, evict)
        if candidate is None:
            return None
        row, copies = candidate
        if copies or evict:  # making room may have moved or dropped them
            parent_slot, prompt_slot = self._sources(request)
        if parent_slot is not None:
            return [*copies, self._branch_from(request, parent_slot, row)]
        if prompt_slot is not None and prompt_slot.shard == row.shard and prompt_slot is not row:
            self._drop_prompt(row)
            self._assign(row, request, len(request.ids) - 1)
            self.counts["copies"] += 1
            self.counts["copied_tokens"] += row.num_cached_tokens
            after_prefill = prompt_slot.num_cached_tokens < row.num_cached_tokens
            return [*copies, SlotCopy(prompt_slot, row, after_prefill)]
        self._drop_prompt(row)
        self._assign(row, request, 0)
        if len(request.ids) - 1 > MAX_FED_TOKENS:
            row.prompt_key = _prompt_key(request)
            self._slot_of_prompt[row.prompt_key] = row
        return copies

    def _sources(self, request: Request) -> tuple[KVSlot | None, KVSlot | None]:
        """The slots that hold the request's parent and its prompt."""
        return self._parent_slot(request), self._slot_of_prompt.get(_prompt_key(request))

    def _parent_slot(self, request: Request) -> KVSlot | None:
        """The slot that holds the request's parent, if the prompt extends what is cached of it."""
        slot = self._slot_of_call.get(id(request.parent))
        return slot if slot is not None and _shared_prefix_length(request, slot) else None

    def _branch_from(self, request: Request, parent_slot: KVSlot, slot: KVSlot) -> SlotCopy:
        """Run the request in `slot` from a copy of its parent's cache.

        A parked cache whose last call is the parent moves; any other stays for other branches.
        """
        shared = _shared_prefix_length(request, parent_slot)
        if self._is_parked(parent_slot) and parent_slot.last_call is request.parent:
            self._move_cache(parent_slot, slot)
            self.counts["restored"] += 1
        else:
            self._drop_prompt(slot)
            self.counts["copies"] += 1
            self.counts["copied_tokens"] += shared
        self._assign(slot, request, shared)
        return SlotCopy(parent_slot, slot)

    def finish(self, slot: KVSlot, call: Call) -> None:
        """Working -> waiting: the row's request has become a call, whose cache stays."""
        slot.request, slot.last_used = None, time.monotonic()
        slot.cached_calls.append((call, slot.num_cached_tokens))
        self._slot_of_call[id(call)] = slot

    def abandon(self, slot: KVSlot) -> None:
        """Working -> waiting or free: drop the request; calls cached before it stay."""
        slot.request, slot.last_used = None, time.monotonic()

    def release(self, call: Call) -> None:
        """Waiting or parked -> free, if this is its last call; else only the call is forgotten."""
        slot = self._slot_of_call.get(id(call))
        if slot is None:
            return
        if slot.request is None and slot.last_call is call:
            self._clear(slot)
        else:
            del self._slot_of_call[id(call)]
            slot.cached_calls = [(other, n) for other, n in slot.cached_calls if other is not call]

    def on_new_weights(self, recompute: bool) -> None:
        """Forget all cached prompts; with `recompute` all cached calls too."""
        self._slot_of_prompt.clear()
        for slot in (*self.rows, *self.parked_slots):
            slot.prompt_key = None
            if recompute:
                self._clear(slot)
                slot.num_cached_tokens = 0

    def _is_parked(self, slot: KVSlot) -> bool:
        return slot.index >= self._rows_per_shard

    def _find_slot(self, shard: int | None, evict: bool) -> tuple[KVSlot, list[SlotCopy]] | None:
        """A row to write over, and the copies that save its cache.

        Without `shard` it is a row of the shard with the most free rows.
        """
        rows = self.rows if shard is None else self._shard_rows[shard]
        idle = [row for row in rows if row.request is None]
        free = [row for row in idle if not row.cached_calls]
        if free:
            num_free = {p: sum(row.shard == p for row in free) for p in {row.shard for row in free}}

            def priority(row: KVSlot) -> tuple[int, bool, float]:
                return -num_free[row.shard], row.prompt_key is not None, row.last_used

            return min(free, key=priority), []
        if not idle or not evict:
            return None
        idle.sort(key=lambda row: row.last_used)
        for row in idle:
            if self._free_parked[row.shard]:
                slot = self._free_parked[row.shard].pop()
                self._move_cache(row, slot)
                self.counts["parked"] += 1
                return row, [SlotCopy(row, slot)]
        self._clear(idle[0])  # its next turn will be prefilled from the start
        self.counts["evictions"] += 1
        return idle[0], []

    def _assign(self, slot: KVSlot, request: Request, num_cached_tokens: int) -> None:
        slot.request, slot.num_cached_tokens = request, min(num_cached_tokens, len(request.ids) - 1)
        request.admitted = epoch_seconds()

    def _move_cache(self, source: KVSlot, target: KVSlot) -> None:
        self._drop_prompt(target)
        target.cached_calls, source.cached_calls = source.cached_calls, []
        if self._is_parked(source):
            self._free_parked[source.shard].append(source)
        target.prompt_key, source.prompt_key = source.prompt_key, None
        target.num_cached_tokens = source.num_cached_tokens
        target.last_used = source.last_used
        for call, _ in target.cached_calls:
            self._slot_of_call[id(call)] = target
        if target.prompt_key is not None:
            self._slot_of_prompt[target.prompt_key] = target

    def _clear(self, slot: KVSlot) -> None:
        """Forget its calls; its prompt may be copied until the slot is overwritten."""
        for call, _ in slot.cached_calls:
            del self._slot_of_call[id(call)]
        if slot.cached_calls and self._is_parked(slot):
            self._free_parked[slot.shard].append(slot)
        slot.cached_calls = []

    def _drop_prompt(self, slot: KVSlot) -> None:
        if slot.prompt_key is not None and self._slot_of_prompt.get(slot.prompt_key) is slot:
            del self._slot_of_prompt[slot.prompt_key]
        slot.prompt_key = None


def _prompt_key(request: Request) -> bytes:
    images = (f"{image.start} {image.image.digest}".encode() for image in request.images)
    return b"".join([request.ids.tobytes(), *images])


def _shared_prefix_length(request: Request, parent_slot: KVSlot) -> int:
    """How many of the request's tokens are those of its parent that are cached in `parent_slot`."""
    assert request.parent is not None
    cached = next(n for call, n in parent_slot.cached_calls if call is request.parent)
    return cached if request.extends(request.parent, cached) else 0

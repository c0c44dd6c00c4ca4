"""`Places`: which request works in which row of the cache, and what the other rows and the parked ones still hold."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.engine import Generation, Image
from agentrl_jax.sampling import FEED
from agentrl_jax.trajectories import Call, FinishReason, Key, Sampling, starts_with


@dataclass(eq=False)
class Request:
    """A call that is not finished."""

    ids: np.ndarray
    sampling: Sampling
    key: Key
    key_data: np.ndarray
    parent: Call | None
    images: tuple[Image, ...]
    future: Generation
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    alternatives: list[np.ndarray] = field(default_factory=list)
    alternative_logp: list[np.ndarray] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.ids) + len(self.tokens)

    def piece(self, start: int, stop: int) -> np.ndarray:
        """Tokens of the prompt and of what is written so far."""
        n = len(self.ids)
        if stop <= n:
            return self.ids[start:stop]
        return np.concatenate([self.ids[start:], np.asarray(self.tokens[max(start - n, 0) : stop - n], np.int32)])

    def cut(self, keep: int) -> None:
        """Forget all tokens but the first `keep`."""
        for column in (self.tokens, self.logp, self.entropy, self.version, self.alternatives, self.alternative_logp):
            del column[keep:]

    def call(self, reason: FinishReason) -> Call:
        n, extended = len(self.tokens), self.parent is not None and starts_with(self.ids, self.parent.ids)
        listed = len(self.alternatives) == n > 0
        return Call(
            prompt=self.ids, action=np.asarray(self.tokens, np.int32), sampler_logp=np.asarray(self.logp, np.float32),
            version=np.asarray(self.version, np.int32), sampling=self.sampling, finish_reason=reason, key=self.key,
            entropy=np.asarray(self.entropy, np.float32), parent=self.parent if extended else None,
            image_spans=tuple((image.start, image.start + len(image.embeddings)) for image in self.images),
            alternatives=np.stack(self.alternatives) if listed else None,
            alternative_logp=np.stack(self.alternative_logp) if listed else None,
        )  # fmt: skip


@dataclass(eq=False)
class Place:
    """A row of the cache, or a parked one. `chain` lists the calls that it holds, each the start of the next."""

    part: int  # of the devices' data axis
    index: int  # within the part; parked places come after the rows
    request: Request | None = None
    chain: list[tuple[Call, int]] = field(default_factory=list)  # a call, and how many of its tokens are cached
    cached: int = 0
    prompt: bytes | None = None  # the whole prompt that its first tokens were prefilled from
    used: float = 0.0

    @property
    def held(self) -> Call | None:
        return self.chain[-1][0] if self.chain else None


@dataclass(frozen=True, eq=False)
class Move:
    """A copy of what a place holds."""

    source: Place
    target: Place
    late: bool = False  # the source must be prefilled first


class Places:
    """Bookkeeping alone: it says what is to be copied where, and the engine does it."""

    def __init__(self, parts: int, rows: int, parked: int) -> None:
        """`rows` and `parked` are those of one part."""
        self._rows_a_part = rows
        self.rows = [Place(part, i) for part in range(parts) for i in range(rows)]
        self.parked = [Place(part, rows + i) for part in range(parts) for i in range(parked)]
        self.counts = {"evictions": 0, "parked": 0, "restored": 0, "copies": 0, "copied_tokens": 0}
        self._home: dict[int, Place] = {}  # by the id of a call in a chain
        self._prompts: dict[bytes, Place] = {}

    @property
    def working(self) -> Iterator[tuple[int, Place, Request]]:
        return ((i, row, row.request) for i, row in enumerate(self.rows) if row.request is not None)

    @property
    def thinking(self) -> bool:
        """Whether some episode that is kept here has no call at work."""
        return any(row.request is None and row.chain for row in self.rows)

    def stay(self, request: Request) -> bool:
        """Put a request into the row that holds its parent, if that is idle."""
        home = self._home.get(id(request.parent))
        if home is None or home.request is not None or home.held is not request.parent or self._is_parked(home):
            return False
        self._begin(home, request, _shared(request, home))
        return True

    def admit(self, request: Request, evict: bool) -> list[Move] | None:
        """Put a request into some row: what must be copied first, or None where there is no room.

        With `evict` a row whose environment thinks makes room: it is parked, or dropped where nothing can be parked.
        """
        home, donor = self._home.get(id(request.parent)), self._prompts.get(_prompt(request))
        near = home or donor
        found = self._room(near.part if near else None, evict)
        if found is None and home is None and donor is not None:
            found = self._room(None, evict)
        if found is None:
            return None
        row, moves = found
        home, donor = self._home.get(id(request.parent)), self._prompts.get(_prompt(request))  # making room may have moved them
        if home is not None:
            return [*moves, self._follow(request, home, row)]
        if donor is not None and donor.part == row.part and donor is not row:
            self._forget_prompt(row)
            self._begin(row, request, len(request.ids) - 1)
            self.counts["copies"] += 1
            self.counts["copied_tokens"] += row.cached
            return [*moves, Move(donor, row, donor.cached < row.cached)]
        self._forget_prompt(row)
        self._begin(row, request, 0)
        if len(request.ids) - 1 > FEED:
            row.prompt = _prompt(request)
            self._prompts[row.prompt] = row
        return moves

    def _follow(self, request: Request, home: Place, row: Place) -> Move:
        """Go on in `row` from the parent's cache, which is parked, or stays where it is for others that go on from it."""
        shared = _shared(request, home)
        if self._is_parked(home) and home.held is request.parent:
            self._transfer(home, row)
            self.counts["restored"] += 1
        else:
            self._forget_prompt(row)
            self.counts["copies"] += 1
            self.counts["copied_tokens"] += shared
        self._begin(row, request, shared)
        return Move(home, row)

    def finish(self, row: Place, call: Call) -> None:
        """The row's request has become a call, whose cache it keeps."""
        row.request, row.used = None, time.monotonic()
        row.chain.append((call, row.cached))
        self._home[id(call)] = row

    def abandon(self, row: Place) -> None:
        """The row's request is given up; what was there before it may still be gone on from."""
        row.request, row.used = None, time.monotonic()

    def release(self, call: Call) -> None:
        place = self._home.get(id(call))
        if place is None:
            return
        if place.request is None and place.held is call:
            self._clear(place)
        else:
            del self._home[id(call)]
            place.chain = [(other, n) for other, n in place.chain if other is not call]

    def renew(self, recompute: bool) -> None:
        """There are new weights: nobody may start from what the old ones made of a prompt, and with `recompute` nobody goes on from it."""
        self._prompts.clear()
        for place in (*self.rows, *self.parked):
            place.prompt = None
            if recompute:
                self._clear(place)
                place.cached = 0

    def _is_parked(self, place: Place) -> bool:
        return place.index >= self._rows_a_part

    @staticmethod
    def _part(places: list[Place], part: int | None) -> list[Place]:
        return [place for place in places if part is None or place.part == part]

    def _room(self, part: int | None, evict: bool) -> tuple[Place, list[Move]] | None:
        """A row to write over, of the emptiest part unless one is asked for, and what must be saved from it."""
        idle = [row for row in self._part(self.rows, part) if row.request is None]
        free = [row for row in idle if not row.chain]
        if free:
            room = {p: sum(row.part == p for row in free) for p in {row.part for row in free}}
            return min(free, key=lambda row: (-room[row.part], row.prompt is not None, row.used)), []
        for row in sorted(idle, key=lambda row: row.used) if evict else ():
            slot = next((slot for slot in self._part(self.parked, row.part) if not slot.chain), None)
            if slot is not None:
                self._transfer(row, slot)
                self.counts["parked"] += 1
                return row, [Move(row, slot)]
        if not idle or not evict:
            return None
        oldest = min(idle, key=lambda row: row.used)
        self._clear(oldest)  # its next turn will be prefilled anew
        self.counts["evictions"] += 1
        return oldest, []

    def _begin(self, row: Place, request: Request, cached: int) -> None:
        row.request, row.cached = request, min(cached, len(request.ids) - 1)

    def _transfer(self, source: Place, target: Place) -> None:
        self._forget_prompt(target)
        target.chain, target.cached, target.prompt, target.used = source.chain, source.cached, source.prompt, source.used
        for call, _ in target.chain:
            self._home[id(call)] = target
        if target.prompt is not None:
            self._prompts[target.prompt] = target
        source.chain, source.prompt = [], None

    def _clear(self, place: Place) -> None:
        """Forget its calls; its prompt may serve others until the place is written over."""
        for call, _ in place.chain:
            del self._home[id(call)]
        place.chain = []

    def _forget_prompt(self, place: Place) -> None:
        if place.prompt is not None and self._prompts.get(place.prompt) is place:
            del self._prompts[place.prompt]
        place.prompt = None


def _prompt(request: Request) -> bytes:
    return b"".join([request.ids.tobytes(), *(b"%d" % image.start + image.embeddings.tobytes() for image in request.images)])


def _shared(request: Request, home: Place) -> int:
    """How many tokens of the request are those of its parent that `home` holds."""
    assert request.parent is not None
    cached = next(n for call, n in home.chain if call is request.parent)
    return cached if starts_with(request.ids, request.parent.ids[:cached]) else 0

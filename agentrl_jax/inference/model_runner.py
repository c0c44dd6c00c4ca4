"""`ModelRunner`: the steps of a local engine: copies, prefill, decode, and its results."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.call_checksum import CallChecksum
from agentrl_jax.engine import GenerationFuture
from agentrl_jax.inference.decode_program import DecodeChunk
from agentrl_jax.inference.device_state import DeviceState
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.kv_slots import KVSlot, SlotTable
from agentrl_jax.inference.request import Request
from agentrl_jax.inference.scheduler import ActiveRow, Scheduler
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, FinishReason


@dataclass(frozen=True)
class _Unsettled:
    """A decode program whose tokens the requests do not have yet."""

    rows: list[ActiveRow]
    chunk: DecodeChunk
    prefilled: float  # the end of its prefill
    version: int  # of its weights


class ModelRunner:
    """Runs the programs that the scheduler plans; appends the sampled tokens to their requests."""

    def __init__(
        self,
        config: EngineConfig,
        device_state: DeviceState,
        slot_table: SlotTable,
        scheduler: Scheduler,
        lock: AbstractContextManager[Any],
        detokenize: Callable[[Sequence[int]], str] | None,
        checksum: CallChecksum,
    ) -> None:
        """`lock` is the engine's; it guards the slot table, which other threads change too."""
        self._config, self._detokenize, self._lock = config, detokenize, lock
        self._checksum = checksum
        self._device_state, self._slot_table = device_state, slot_table
        self._scheduler = scheduler
        names = ("prefill_tokens", "fed_tokens", "sampled_tokens", "prefills", "decodes")
        self.counts = dict.fromkeys(names, 0)  # tokens and programs since the start
        self._unsettled: _Unsettled | None = None
        # Results that callers get while the next program runs.
        self._undelivered: list[tuple[GenerationFuture, Call]] = []
        # Of each row, whose state the sampler has.
        self._row_requests: list[Request | None] = [None] * len(slot_table.rows)

    def step(self, params: Params, version: int) -> None:
        """Copy and prefill for admitted requests, then run a decode program on all working rows."""
        for i, slot, request in self._slot_table.active:
            if request is not self._row_requests[i]:
                self._start_request(slot, request, version)
        copies = self._scheduler.take_copies()
        self._device_state.copy_slots([copy for copy in copies if not copy.after_prefill])
        for batch in self._scheduler.prefill_batches():
            self.counts["prefill_tokens"] += self._device_state.prefill(
                params, batch.attention_length, batch.row_chunks, batch.wide
            )
            self.counts["prefills"] += 1
        self._device_state.copy_slots([copy for copy in copies if copy.after_prefill])
        self._decode(params, version)

    def _start_request(self, slot: KVSlot, request: Request, version: int) -> None:
        """Set a new call's forced tokens; finish it if nothing is left to sample."""
        forced = request.sampling.forced[: request.sampling.budget]
        if not request.tokens and forced:
            request.force(forced, version, self._config.alternatives)
        if request.length >= self._config.positions:
            request.truncate(max(0, self._config.positions - len(request.ids)))
            self._finish(slot, request, "context")
        elif (
            forced
            and len(request.tokens) == len(forced)
            and (reason := self._finish_reason(request, slot))
        ):
            self._finish(slot, request, reason)

    def _decode(self, params: Params, version: int) -> None:
        """Run one decode program on all live rows.

        What the last one sampled is settled while it runs, unless that was done at once: where the
        next program waits for the replies, or text must be looked at; where requests wait for a
        row, only the calls that have ended.
        """
        self._set_sampler_state()
        state, c = self._device_state.sampler_state, self._config
        if not state.num_live:
            self.settle()
            return
        rows = list(self._slot_table.active)
        has_stop_strings = any(request.sampling.stop_strings for *_, request in rows)
        decoded, prefilled = self._device_state.decode(
            params,
            self._scheduler.attention_length(
                state.longest_row(c.max_decode_steps * (1 + c.guesses))
            ),
            c.min_decode_steps,
            c.min_decode_steps if has_stop_strings else c.max_decode_steps,
            self.settle,
        )
        state.advance(*map(np.asarray, (decoded.tokens, decoded.num_fed, decoded.num_written)))
        self.counts["decodes"] += 1
        self.counts["sampled_tokens"] += int(decoded.num_written.sum())
        self.counts["fed_tokens"] += int(decoded.num_fed.sum())
        self._unsettled = _Unsettled(rows, decoded, prefilled, version)
        if has_stop_strings:
            self._append_tokens()
        elif self._scheduler.has_queued:
            self._append_tokens(of_ended=True)
        ready = sum(1 for _ in self._slot_table.active) if has_stop_strings else state.num_live
        if not self._scheduler.runs_at_once(ready):
            self.settle()

    def settle(self) -> None:
        """Finish or cancel the requests of the last program, and hand out the finished calls."""
        self._append_tokens()
        undelivered, self._undelivered = self._undelivered, []
        for future, call in undelivered:
            future.set_result(call)

    def _append_tokens(self, of_ended: bool = False) -> None:
        """Append the last program's tokens to their requests; finish or cancel requests.

        With `of_ended` only to those that have nothing left to sample; the rest follows later.
        """
        if self._unsettled is None:
            return
        last, decoded = self._unsettled, self._unsettled.chunk
        if not of_ended:
            self._unsettled = None
        num_fed, num_written = decoded.num_fed.tolist(), decoded.num_written.tolist()
        columns = [np.asarray(x) for x in (decoded.tokens, decoded.logp, decoded.entropy)]
        is_live = self._device_state.sampler_state.is_live.tolist()
        for i, slot, request in last.rows:
            if slot.request is not request or (of_ended and is_live[i]):
                continue  # it had ended before, or has not ended yet
            request.prefilled = request.prefilled or last.prefilled
            span = slice(num_fed[i], num_fed[i] + num_written[i])
            slot.num_cached_tokens += span.stop
            request.append(*(column[i, span] for column in columns), version=last.version)
            if self._config.alternatives:
                request.alternatives += list(decoded.alternatives[i, span])
                request.alternative_logp += list(decoded.alternative_logp[i, span])
            reason = self._finish_reason(request, slot) if num_written[i] else None
            if reason:
                self._finish(slot, request, reason)
            elif request.future.cancel_requested:
                with self._lock:
                    self._slot_table.abandon(slot)
                request.future.set_exception(RuntimeError("the call was cancelled"))
            elif request.future.on_tokens:
                request.future.on_tokens(list(request.tokens))

    def _set_sampler_state(self) -> None:
        """Fill in the rows whose requests are new or were changed since the last program."""
        state, c = self._device_state.sampler_state, self._config
        lengths, is_settled = state.lengths.tolist(), self._unsettled is None
        for i, slot in enumerate(self._slot_table.rows):
            request = slot.request
            if request is self._row_requests[i] and (
                request is None or not is_settled or slot.num_cached_tokens == lengths[i]
            ):
                continue  # the last program has left the row where it is
            self._row_requests[i] = request
            if request is None:
                state.ints[i] = 0
                continue
            if c.guesses:
                state.history[i, : request.length] = request.token_slice(0, request.length)
            s, n = request.sampling, request.length
            remaining = min(s.budget - len(request.tokens), c.positions - n)
            state.set_row(
                i,
                request.token_slice(slot.num_cached_tokens, n),
                slot.num_cached_tokens,
                remaining,
                len(request.tokens),
                s.top_k,
                request.key_data,
                s.stop_ids,
                (s.temperature, s.top_p, s.min_p),
                request.rope_delta,
            )

    def _finish_reason(self, request: Request, slot: KVSlot) -> FinishReason | None:
        """Why the request ends, None if it does not; drops what follows a stop string."""
        sampling = request.sampling
        if sampling.stop_strings and self._truncate_at_stop_string(request, slot):
            return "stop"
        if request.tokens and request.tokens[-1] in sampling.stop_ids:
            return "stop"
        if len(request.tokens) >= sampling.budget:
            return "budget"
        return "context" if request.length >= self._config.positions else None

    def _truncate_at_stop_string(self, request: Request, slot: KVSlot) -> bool:
        """Drop what follows the first stop string from the action and from the cache."""
        assert self._detokenize is not None

        def has_stop_string(n: int) -> bool:
            text = self._detokenize(request.tokens[:n].tolist())  # type: ignore[misc]
            return any(stop in text for stop in request.sampling.stop_strings)

        if not has_stop_string(len(request.tokens)):
            return False
        request.truncate(next(n for n in range(1, len(request.tokens) + 1) if has_stop_string(n)))
        slot.num_cached_tokens = min(slot.num_cached_tokens, request.length - 1)
        return True

    def _finish(self, slot: KVSlot, request: Request, reason: FinishReason) -> None:
        """Turn the request into a call, whose cache stays in the slot."""
        call = request.to_call(reason, self._slot_table.row_number(slot), self._checksum)
        with self._lock:
            self._slot_table.finish(slot, call)
            self._scheduler.last_event_time = slot.last_used
        self._undelivered.append((request.future, call))

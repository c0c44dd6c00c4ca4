"""`ModelRunner`: the steps of a local engine: copies, prefill, decode, and its results."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from agentrl_jax.call_checksum import CallChecksum
from agentrl_jax.inference.decode_program import DecodeChunk
from agentrl_jax.inference.device_state import DeviceState
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.kv_slots import KVSlot, SlotTable
from agentrl_jax.inference.request import Request
from agentrl_jax.inference.scheduler import Scheduler
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import FinishReason


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

    def step(self, params: Params, version: int) -> None:
        """Copy and prefill for admitted requests, then run a decode program on all working rows."""
        for slot in self._slot_table.rows:
            if slot.request is not None:
                self._start_request(slot, slot.request, version)
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
        """Run one decode program; append its tokens, and finish or cancel requests."""
        max_length, max_steps = self._set_sampler_state()
        if not self._device_state.sampler_state.ints.any():
            return
        attention_length = self._scheduler.attention_length(max_length)
        decoded, prefilled = self._device_state.decode(
            params, attention_length, self._config.min_decode_steps, max_steps
        )
        self.counts["decodes"] += 1
        self.counts["sampled_tokens"] += int(decoded.num_written.sum())
        self.counts["fed_tokens"] += int(decoded.num_fed.sum())
        for i, slot, request in list(self._slot_table.active):
            request.prefilled = request.prefilled or prefilled
            self._append_tokens(decoded, i, slot, request, version)
            reason = self._finish_reason(request, slot) if decoded.num_written[i] else None
            if reason:
                self._finish(slot, request, reason)
            elif request.future.cancel_requested:
                with self._lock:
                    self._slot_table.abandon(slot)
                request.future.set_exception(RuntimeError("the call was cancelled"))
            elif request.future.on_tokens:
                request.future.on_tokens(list(request.tokens))

    def _set_sampler_state(self) -> tuple[int, int]:
        """Fill in all rows; returns the longest row after decoding, and the most decode steps."""
        state, c = self._device_state.sampler_state, self._config
        max_length, max_steps = 0, c.max_decode_steps
        state.ints[:] = 0
        for i, slot, request in self._slot_table.active:
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
            if s.stop_strings:
                max_steps = c.min_decode_steps
            max_length = max(max_length, n + min(remaining, c.max_decode_steps))
        return max_length, max_steps

    def _append_tokens(
        self, decoded: DecodeChunk, i: int, slot: KVSlot, request: Request, version: int
    ) -> None:
        """Append the tokens that row `i` has sampled."""
        num_fed, n = int(decoded.num_fed[i]), int(decoded.num_written[i])
        span = slice(num_fed, num_fed + n)
        request.tokens += decoded.tokens[i, span].tolist()
        request.logp += decoded.logp[i, span].tolist()
        request.entropy += decoded.entropy[i, span].tolist()
        request.version += [version] * n
        if self._config.alternatives:
            request.alternatives += list(decoded.alternatives[i, span])
            request.alternative_logp += list(decoded.alternative_logp[i, span])
        slot.num_cached_tokens += num_fed + n

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
            text = self._detokenize(request.tokens[:n])  # type: ignore[misc]
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
        request.future.set_result(call)

"""`LocalEngine`: samples on this process's devices and keeps KV caches between turns."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from agentrl_jax.call_checksum import CallChecksum, no_checksum
from agentrl_jax.engine import GenerationFuture, PromptImage
from agentrl_jax.inference.batch_sampler import BatchSampler
from agentrl_jax.inference.device_state import DeviceState
from agentrl_jax.inference.engine_config import EngineConfig, validate_engine_config
from agentrl_jax.inference.image_encoder import prompt_layout
from agentrl_jax.inference.kv_slots import SlotTable
from agentrl_jax.inference.model_runner import ModelRunner
from agentrl_jax.inference.request import Request, check_request
from agentrl_jax.inference.scheduler import Scheduler
from agentrl_jax.keys import key_data
from agentrl_jax.policy import Params, Policy
from agentrl_jax.sampling_weights import sampling_dtype
from agentrl_jax.trajectories import Call, RandomKey, Sampling


class LocalEngine:
    """An `Engine` on this process's devices, with continuous batching over KV slots.

    Only the engine's own thread runs its programs, but for those of `sample_batch`, between them.
    """

    def __init__(
        self,
        policy: Policy,
        config: EngineConfig,
        params: Params,
        version: int = 0,
        detokenize: Callable[[Sequence[int]], str] | None = None,
        first_row: int = 0,
        in_place: bool = True,
        checksum: CallChecksum = no_checksum,
    ) -> None:
        """Compile all programs and start the engine's thread.

        Args:
            policy: the model.
            config: the engine's sizes and devices.
            params: the first weights, copied.
            version: tags the tokens sampled with these weights.
            detokenize: decodes token ids; only stop strings need it.
            first_row: the number of its first row in the times of calls.
            in_place: new weights take the memory of the old ones, so that what `weights_in_use`
                returned is deleted then; else there are two copies during a publication.
            checksum: of what it records of a call (`Invariants.call_checksum`).

        Raises:
            UserError: the config's sizes do not fit each other or the devices.
        """
        self.config, self._detokenize, c = config, detokenize, config
        mesh = config.devices()
        validate_engine_config(config, num_shards := mesh.shape["data"])
        # One more per shard, through which a row and a parked slot swap their caches.
        parked_slots = c.parked_slots + num_shards if c.parked_slots else 0
        self._device_state = DeviceState(
            policy,
            mesh,
            rows=c.rows,
            parked_slots=parked_slots,
            positions=c.positions,
            prefill_chunk=c.prefill_chunk,
            prefill_tokens=c.prefill_tokens,
            max_decode_steps=c.max_decode_steps,
            alternatives=c.alternatives,
            guesses=c.guesses,
            image_patches=c.image_patches,
            dtype=sampling_dtype(policy, c.dtype),
        )
        self._slot_table = SlotTable(
            num_shards, c.rows // num_shards, parked_slots // num_shards, first_row
        )
        attention_lengths = [c.positions // 2**i for i in reversed(range(c.spans))]
        self._scheduler = Scheduler(
            self._slot_table,
            attention_lengths=attention_lengths,
            prefill_chunk=c.prefill_chunk,
            num_shards=num_shards,
            prefill_rows=self._device_state.prefill_rows,
            batching_delay=c.batching_delay,
        )
        self._condition = threading.Condition()
        self._weights_lock = threading.Lock()  # while a batch is sampled with them, or they change
        encoder = self._device_state.image_encoder
        self._check_request = functools.partial(check_request, detokenize is not None, encoder)
        self._model_runner = ModelRunner(
            c,
            self._device_state,
            self._slot_table,
            self._scheduler,
            self._condition,
            detokenize,
            checksum,
        )
        self.busy_seconds: float = 0.0  # the time during which programs ran
        self._closed, self._in_place = False, in_place
        self._is_stepping, self._pauses = False, 0  # blocks between steps, waiting or running
        self._error: BaseException | None = None
        self._pending_weights: tuple[Params, int, bool] | None = None
        self._params, self._version = self._device_state.put_weights(params), version
        self._device_state.warm_up(self._params, attention_lengths)
        self._batch_sampler: BatchSampler | None = None
        if c.batch_rows:
            self._batch_sampler = BatchSampler(policy, mesh, c.batch_rows, c.positions, checksum)
            self._batch_sampler.warm_up(self._params)
        self._thread = threading.Thread(target=self._run_loop, name="engine", daemon=True)
        self._thread.start()

    @property
    def num_slots(self) -> int:
        """How many episodes keep their KV cache: rows and parked slots."""
        return self.config.rows + self.config.parked_slots

    @property
    def positions(self) -> int:
        return self.config.positions

    @property
    def version(self) -> int:
        """The version of the weights that it samples with."""
        return self._version

    @property
    def counts(self) -> dict[str, int]:
        """Tokens, programs and copies since the start."""
        runner, slots, device = self._model_runner, self._slot_table, self._device_state
        return {**runner.counts, **slots.counts, **device.counts}

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> GenerationFuture:
        """See `Engine.submit`.

        Raises:
            ValueError: an empty prompt, too many stop ids, stop strings without `detokenize`, or
                images that do not fit.
        """
        self._check_request(ids, sampling, images)
        ids, future = np.asarray(ids, np.int32), GenerationFuture()
        layout = prompt_layout(self._device_state.image_encoder, images, len(ids))
        request = Request(ids, sampling, key, key_data(key), parent, tuple(images), layout, future)
        with self._condition:
            if self._error is not None or self._closed:
                raise RuntimeError("the engine has stopped") from self._error
            self._scheduler.add(request)
            self._notify()
        return request.future

    def release(self, call: Call) -> None:
        """See `Engine.release`."""
        with self._condition:
            self._slot_table.release(call)
            self._notify()

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """See `Engine.publish`.

        Between two steps the new weights take the memory of the old ones. They are a second copy
        where these are still needed: by calls that drain, or by the step that this is called from.
        """
        drains = self.config.drain_before_update
        if drains or not self._in_place or threading.current_thread() is self._thread:
            copy = self._device_state.put_weights(params)
            with self._condition:
                recompute |= self._pending_weights is not None and self._pending_weights[2]
                self._pending_weights = copy, version, recompute
                self._notify()
            return
        with self._weights_lock, self._between_steps():
            if self._pending_weights is not None:
                recompute |= self._pending_weights[2]
                self._pending_weights = None
            self._params = self._device_state.put_weights(params, self._params)
            self._version = version
            self._slot_table.on_new_weights(recompute)

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[None]:
        """No step runs in the block; an error in it stops the engine."""
        with self._condition:
            self._pauses += 1
            self._condition.wait_for(lambda: not self._is_stepping)
        try:
            self._model_runner.settle()
            yield
        except BaseException as error:
            self._error, self._closed = error, True
            raise
        finally:
            with self._condition:
                self._pauses -= 1
                self._notify()

    def samples_batches(self, sampling: Sampling) -> bool:
        """See `BatchEngine.samples_batches`."""
        is_plain = not (sampling.forced or sampling.stop_strings or self.config.alternatives)
        return self._batch_sampler is not None and is_plain

    def sample_batch(
        self, prompts: Sequence[np.ndarray], n: int, sampling: Sampling, key: RandomKey
    ) -> list[list[Call]]:
        """See `BatchEngine.sample_batch`."""
        assert self._batch_sampler is not None
        for prompt in prompts:
            self._check_request(prompt, sampling, ())
        with self._weights_lock, self._between_steps():
            weights = self._params, self._version
            if self._pending_weights is not None:
                weights = self._pending_weights[:2]
            return self._batch_sampler.sample(*weights, prompts, n, sampling, key)

    def wait_until_idle(self) -> None:
        """See `ProgramRunner.wait_until_idle`; a stopped engine is idle."""
        with self._condition:
            self._condition.wait_for(
                lambda: not self._is_stepping and (self._closed or not self._scheduler.has_requests)
            )

    def weights_in_use(self) -> Sequence[tuple[int, Params]]:
        """See `WeightHolder.weights_in_use`."""
        with self._condition:
            return [(self._version, self._params)]

    def close(self) -> None:
        """Stop; calls in progress raise RuntimeError."""
        with self._condition:
            self._closed = True
            self._notify()
        self._thread.join()

    def _notify(self) -> None:
        self._scheduler.last_event_time = time.monotonic()
        self._condition.notify_all()

    def _run_loop(self) -> None:
        """Run steps until the engine is closed or a step fails, then fail what is unfinished."""
        try:
            while True:
                with self._condition:
                    while not self._closed and (
                        self._pauses or not (self._pending_weights or self._scheduler.has_requests)
                    ):
                        self._condition.wait()
                    if self._closed:
                        break
                    self._wait_for_batch()
                    if self._pauses:
                        continue
                    self._admit(evict=True)
                    self._is_stepping = True
                start = time.monotonic()
                self._model_runner.step(self._params, self._version)
                with self._condition:
                    self._is_stepping = False
                    self._condition.notify_all()
                self._scheduler.last_step_seconds = time.monotonic() - start
                self.busy_seconds += self._scheduler.last_step_seconds
        except BaseException as error:
            self._error = error
        self._model_runner.settle()
        (stopped := RuntimeError("the engine has stopped")).__cause__ = self._error
        with self._condition:
            self._is_stepping, self._closed = False, True
            self._condition.notify_all()
            for request in self._scheduler.requests:
                if not request.future.done():
                    request.future.set_exception(stopped)

    def _wait_for_batch(self) -> None:
        """Admit requests for as long as the scheduler waits for one more."""
        while not self._closed:
            self._admit(evict=False)
            if (seconds := self._scheduler.batching_wait()) <= 0:
                return
            self._condition.wait(seconds)

    def _admit(self, evict: bool) -> None:
        """Switch to published weights, then admit requests; a draining engine does neither."""
        if self._pending_weights is not None:
            if self.config.drain_before_update and any(self._slot_table.active):
                return
            self._model_runner.settle()
            weights, self._pending_weights = self._pending_weights, None
            self._params, self._version, recompute = weights
            self._slot_table.on_new_weights(recompute)
        self._scheduler.admit(evict)

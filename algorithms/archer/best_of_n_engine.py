"""`BestOfNEngine`: samples several utterances for every prompt and returns the one that a critic
ranks first (CHAI, arXiv 2204.08426).
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.algorithms.archer.replay_buffer import decode_ids
from agentrl_jax.algorithms.archer.twin_trainer import TwinCriticTrainer
from agentrl_jax.distributed.resharding import reshard
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh, replicated_sharding
from agentrl_jax.engine import Engine, PromptImage
from agentrl_jax.errors import UserError
from agentrl_jax.images.prompts import refuse_images
from agentrl_jax.policy import Params
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Call, RandomKey, Sampling

# The candidates of some prompts -> the index of the best of each
SelectBest = Callable[[Sequence[Sequence[Call]]], Sequence[int]]


class BestOfNEngine:
    """Wraps an `Engine`. A separate thread selects, for many prompts at once."""

    def __init__(self, engine: Engine, best_of_n: int, select: SelectBest, max_calls: int) -> None:
        """
        Args:
            select: is called with at most `max_calls` candidates in all.

        Raises:
            UserError: `best_of_n` exceeds `max_calls`.
        """
        if best_of_n > max_calls:
            raise UserError(
                f"best_of_n is {best_of_n}, but only {max_calls} utterances can be scored at once"
            )
        self._engine, self._best_of_n, self._select = engine, best_of_n, select
        self._max_prompts = max_calls // best_of_n
        self._candidates: SimpleQueue[tuple[Future[Call], list[Future[Call]]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._select_loop, name="ranking", daemon=True)
        self._thread.start()

    @property
    def num_slots(self) -> int:
        return max(1, self._engine.num_slots // self._best_of_n)

    @property
    def positions(self) -> int:
        return self._engine.positions

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        """See `Engine.submit`; the index of the candidate is appended to the key."""
        future: Future[Call] = Future()
        candidates = [
            self._engine.submit(ids, sampling, (*key, i), parent, images)
            for i in range(self._best_of_n)
        ]
        unfinished, lock = [len(candidates)], threading.Lock()

        def count_finished(_: object) -> None:
            with lock:
                unfinished[0] -= 1
                is_last = unfinished[0] == 0
            if is_last:
                self._candidates.put((future, candidates))

        for candidate in candidates:
            candidate.add_done_callback(count_finished)
        return future

    def release(self, call: Call) -> None:
        self._engine.release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        self._engine.publish(params, version, recompute)

    def close(self) -> None:
        """Ends the selecting thread; the wrapped engine is closed by its owner."""
        self._candidates.put(None)
        self._thread.join()

    def _select_loop(self) -> None:
        while (first := self._candidates.get()) is not None:
            pending = [first]
            while len(pending) < self._max_prompts and not self._candidates.empty():
                if (item := self._candidates.get()) is None:
                    self._candidates.put(None)
                    break
                pending.append(item)
            self._resolve(pending)

    def _resolve(self, pending: Sequence[tuple["Future[Call]", list["Future[Call]"]]]) -> None:
        ready: list[tuple[Future[Call], list[Call]]] = []
        for future, candidates in pending:
            errors = [error for x in candidates if (error := x.exception()) is not None]
            failed = next(iter(errors), None)
            calls = [x.result() for x in candidates if x.exception() is None]
            if failed is None and future.set_running_or_notify_cancel():
                ready.append((future, calls))
                continue
            for call in calls:
                self._engine.release(call)
            if failed is not None and not future.cancelled():
                future.set_exception(failed)
        try:
            best = self._select([calls for _, calls in ready]) if ready else []
        except BaseException as error:
            for future, _ in ready:
                future.set_exception(error)
            return
        for (future, calls), i in zip(ready, best):
            for j, call in enumerate(calls):
                if j != i:
                    self._engine.release(call)
            future.set_result(calls[i])


class BestOfNSelector:
    """Selects the utterance of the largest min_k Qbar_k, with a copy of the target network on this
    process's first device.
    """

    def __init__(self, critic_trainer: TwinCriticTrainer, target: Params, agent: Agent) -> None:
        self._critic_trainer, self._agent = critic_trainer, agent
        self.set_target_params(target)
        critic_trainer.warm_up_target_q(self._target)

    def set_target_params(self, target: Params) -> None:
        """Score by these weights from now on."""
        mesh = make_mesh(MeshConfig(), jax.local_devices()[:1])
        sharding = replicated_sharding(mesh)
        self._target = jax.tree.map(lambda x: jnp.copy(reshard(x, sharding)), target)

    def __call__(self, candidates: Sequence[Sequence[Call]]) -> list[int]:
        """The index of the selected call among each prompt's candidates."""
        calls = [call for group in candidates for call in group]
        refuse_images(calls, "an utterance critic")
        states = [decode_ids(call.prompt, self._agent) for call in calls]
        utterances = [decode_ids(call.action, self._agent) for call in calls]
        q = self._critic_trainer.min_target_q(self._target, states, utterances)
        ends = np.cumsum([len(group) for group in candidates])
        return [int(np.argmax(part)) for part in np.split(q, ends[:-1])]

"""`LazyEngine`: an engine that is made when it is first used."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from agentrl_jax.engine import Engine, ProgramRunner, PromptImage
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, RandomKey, Sampling


class LazyEngine:
    """An engine of weights that are not trained here, and may not exist before the first call: a
    later phase may use the checkpoint of an earlier one. It takes no memory until then.
    """

    def __init__(self, make: Callable[[], Engine], config: EngineConfig) -> None:
        """`make` loads the weights and makes the engine that `config` describes."""
        self._make, self._config = make, config
        self._engine: Engine | None = None

    @property
    def num_slots(self) -> int:
        return (self._config.rows + self._config.parked_slots) * self._config.engines

    @property
    def positions(self) -> int:
        return self._config.positions

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        """See `Engine.submit`; the first call waits for the engine's programs to compile."""
        if self._engine is None:
            self._engine = self._make()
        return self._engine.submit(ids, sampling, key, parent, images)

    def release(self, call: Call) -> None:
        if self._engine is not None:
            self._engine.release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """Raises UserError: nothing trains these weights."""
        raise UserError("the weights of a named model are frozen: train the agent 'policy' instead")

    def wait_until_idle(self) -> None:
        """See `ProgramRunner.wait_until_idle`."""
        if isinstance(self._engine, ProgramRunner):
            self._engine.wait_until_idle()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

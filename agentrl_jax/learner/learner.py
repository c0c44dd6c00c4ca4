"""`Learner`: sharded optimizer steps with gradient accumulation over microbatches."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.stages import Lowered, Traced
from jaxtyping import Array, Float, Key

from agentrl_jax.distributed.sharding import (
    batch_sharding,
    replicated_sharding,
    weight_shardings,
    with_auto_axes,
)
from agentrl_jax.learner.chunked_logp import ForwardFn, make_logp_forward
from agentrl_jax.learner.data_shards import DataShard, make_data_shard, put_sharded
from agentrl_jax.learner.optimizer_shardings import optimizer_shardings
from agentrl_jax.learner.optimizer_step import finite_optimizer_step
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.program_meter import PROGRAM_METER
from agentrl_jax.learner.rounding import warn_of_rounding
from agentrl_jax.learner.scheduled_transformation import RATE, learning_rates
from agentrl_jax.learner.train_state import TrainState, merge_trainable
from agentrl_jax.policy import Params, Policy

# (the forward function's arrays [B, T]..., the algorithm's microbatch)
# -> (loss [B, T], metrics [B, T] each)
TokenLoss = Callable[..., tuple[Array, dict[str, Array]]]


@runtime_checkable
class Model(Protocol):
    """The model that a learner trains; every `Policy` is one."""

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any: ...

    def trainable(self) -> Any: ...


class Learner:
    """Updates a model with one compiled gradient program and one optimizer program.

    An optimizer step accumulates the gradients of any number of microbatches of one shape, so a
    changing number of sequences causes no recompilation.
    """

    def __init__(
        self,
        model: Model,
        tx: optax.GradientTransformation,
        loss: TokenLoss,
        mesh: Mesh,
        forward: ForwardFn | None = None,
        score_forward: ForwardFn | None = None,
    ) -> None:
        """Builds the programs; they compile at their first call.

        Args:
            model: what to train.
            tx: the optimizer.
            loss: per token, from the forward function's arrays and a microbatch.
            mesh: of the learner.
            forward: None: the model is a `Policy`, and the loss gets its log-probs and entropies.
            score_forward: the forward function of `score`, where it differs.
        """
        if forward is None:
            assert isinstance(model, Policy), f"a {type(model).__name__} needs a forward function"
            forward = make_logp_forward(model)
        mesh = with_auto_axes(mesh)
        self._model, self._tx, self._mesh = model, tx, mesh
        self._loss, self._forward = loss, forward
        self._metric_names: tuple[str, ...] = ()
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        self._param_shardings = weight_shardings(mesh, model.axes(), shapes)
        self._trainable = model.trainable()
        trainable_shardings = self._select_trainable(self._param_shardings)
        replicated = replicated_sharding(mesh)
        trainable_shapes = self._select_trainable(shapes)
        warn_of_rounding(trainable_shapes, tx)
        self._opt_shardings = optimizer_shardings(
            jax.eval_shape(self._init_optimizer, trainable_shapes),
            trainable_shapes,
            trainable_shardings,
            replicated,
        )
        self._zero_gradient = jax.jit(
            lambda p: jax.tree.map(jnp.zeros_like, self._select_trainable(p)),
            out_shardings=trainable_shardings,
        )
        self._accumulate = jax.jit(
            self._accumulate_fn, donate_argnums=(1, 2), out_shardings=(trainable_shardings, None)
        )
        self._apply = jax.jit(self._apply_fn, donate_argnums=0)
        self._microbatch_key = jax.jit(
            lambda key, step, i: jax.random.fold_in(jax.random.fold_in(key, step), i),
            out_shardings=replicated,
        )
        self._score_program = jax.jit(
            lambda params, batch: (score_forward or forward)(params, batch, None)[0],
            out_shardings=batch_sharding(mesh),
        )

    def _select_trainable(self, tree: Any) -> Any:
        """A tree like the parameters, with None (no leaf) in place of frozen ones."""
        return jax.tree.map(lambda trained, x: x if trained else None, self._trainable, tree)

    def init(self, key: Array, params: Params) -> TrainState:
        """A state with a sharded copy of `params`; frozen weights have no optimizer moments."""
        params = jax.tree.map(put_sharded, params, self._param_shardings)
        opt_state = jax.jit(self._init_optimizer, out_shardings=self._opt_shardings)(
            self._select_trainable(params)
        )
        replicated = replicated_sharding(self._mesh)
        return TrainState(
            step=put_sharded(jnp.int32(0), replicated),
            params=params,
            opt_state=opt_state,
            key=put_sharded(key, replicated),
        )

    def _init_optimizer(self, trained: Params) -> Any:
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            return self._tx.init(trained)

    def _accumulate_fn(
        self,
        params: Params,
        gradient: Params,
        sums: dict[str, Array],
        batch: Any,
        microbatch_fraction: Float[Array, ""],
        key: Key[Array, ""],
    ) -> tuple[Params, dict[str, Array]]:
        """Gradient and metrics with those of a microbatch added."""

        def objective(trained: Params) -> tuple[Array, dict[str, Array]]:
            outputs, aux = self._forward(merge_trainable(trained, params), batch.batch, key)
            loss, metrics = self._loss(*outputs, batch)
            mask = jnp.asarray(batch.batch.action_mask)
            total = jnp.sum(jnp.where(mask, jnp.asarray(batch.batch.weight) * loss, 0.0))
            sums = {name: jnp.sum(jnp.where(mask, value, 0.0)) for name, value in metrics.items()}
            sums = {"loss": total, "tokens": jnp.sum(mask.astype(jnp.float32)), **sums}
            if aux is None:
                return total, sums
            mean_aux = microbatch_fraction * aux
            return total + mean_aux, {**sums, "aux": mean_aux}

        trained = self._select_trainable(params)
        (_, new), new_gradient = jax.value_and_grad(objective, has_aux=True)(trained)
        gradient = jax.tree.map(jnp.add, gradient, new_gradient)
        return gradient, {
            name: sums[name] + value if sums else value for name, value in new.items()
        }

    def _apply_fn(
        self, state: TrainState, gradient: Params, loss: Float[Array, ""]
    ) -> tuple[TrainState, dict[str, Array]]:
        """The state after an optimizer step, and the gradient's norm; where the norm or the loss is
        not finite, weights and optimizer state stay as they are.
        """
        trained = self._select_trainable(state.params)
        new, opt_state, norm, finite = finite_optimizer_step(
            self._tx, trained, state.opt_state, gradient, loss
        )
        params = merge_trainable(new, state.params)
        # The next step's programs are compiled for states of these shardings.
        params, opt_state = jax.lax.with_sharding_constraint(
            (params, opt_state), (self._param_shardings, self._opt_shardings)
        )
        metrics = {"gradient_norm": norm, "nonfinite": (~finite).astype(jnp.float32)}
        metrics |= learning_rates(self._tx, state.opt_state)
        step = state.step + 1  # of skipped updates too: each has random keys of its own
        return dataclasses.replace(state, step=step, params=params, opt_state=opt_state), metrics

    @functools.cached_property
    def data_shard(self) -> DataShard:
        """Which rows of its batches this process feeds."""
        return make_data_shard(self._mesh)

    def update(
        self,
        state: TrainState,
        microbatches: Sequence[Any],
        proceed: Callable[[dict[str, Array]], bool] | None = None,
    ) -> tuple[TrainState, dict[str, Array]]:
        """One optimizer step on sum(weight x loss) over all microbatches.

        Auxiliary losses (`PolicyOutput.aux`) are added as their mean over the microbatches.

        Args:
            state: is donated.
            microbatches: pytrees with a `batch` field; each process passes its part of the rows, in
                equally many microbatches.
            proceed: whether to take the step, given the sums below; else they are the metrics.

        Returns:
            The new state and metrics on the device: `loss` (without auxiliary losses), `aux` where
            there are any, `tokens`, sums over tokens of the loss's metrics; `gradient_norm`,
            `learning_rate`, `nonfinite` (1 where the gradient or the loss is not finite, so that
            the update was skipped).
        """
        with jax.set_mesh(self._mesh):
            gradient, sums = self._accumulate_microbatches(state, microbatches)
            if proceed is not None and not proceed(sums):
                return state, sums
            state, metrics = self._apply(state, gradient, sums["loss"])
        return state, {**sums, **PROGRAM_METER.finish("update", metrics)}

    def warm_up(self, state: TrainState, microbatch: Any) -> None:
        """Compile the gradient program for microbatches of this shape, without an update."""
        with jax.set_mesh(self._mesh):
            self._accumulate_microbatches(state, [microbatch, microbatch])

    def _accumulate_microbatches(
        self, state: TrainState, microbatches: Sequence[Any]
    ) -> tuple[Params, dict[str, Any]]:
        """The gradient and the metrics summed over all microbatches."""
        fraction = np.float32(1 / len(microbatches))  # a JAX array would wait for the device
        gradient = self._zero_gradient(state.params)
        if not self._metric_names:
            inputs = state.params, gradient, {}, microbatches[0], fraction, state.key
            self._metric_names = tuple(jax.eval_shape(self._accumulate_fn, *inputs)[1])
        sums: dict[str, Any] = {name: np.float32(0) for name in self._metric_names}
        for i, microbatch in enumerate(microbatches):
            key = self._microbatch_key(state.key, state.step, np.int32(i))
            rows = self.data_shard.put_global(microbatch, microbatch.batch)
            inputs = state.params, gradient, sums, rows, fraction, key
            gradient, sums = PROGRAM_METER.run(self._accumulate, self._mesh, inputs)
        return gradient, sums

    def abstract_inputs(self, microbatch: Any) -> tuple[TrainState, Any]:
        """A state and a microbatch (of arrays or `jax.ShapeDtypeStruct`s) as shapes with shardings;
        the mesh's devices need not exist.
        """

        def with_shardings(tree: Any, shardings: Any) -> Any:
            return jax.tree.map(
                lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings
            )

        def init_state(key: Array) -> TrainState:
            params = self._model.init(key)
            return TrainState(
                step=jnp.int32(0),
                params=params,
                opt_state=self._init_optimizer(self._select_trainable(params)),
                key=key,
            )

        replicated, rows = replicated_sharding(self._mesh), batch_sharding(self._mesh)
        state = jax.eval_shape(init_state, jax.random.key(0))
        # In the order of the state's fields.
        shardings = (replicated, self._param_shardings, self._opt_shardings, replicated)
        state_shardings = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(shardings))
        state = with_shardings(state, state_shardings)
        return state, jax.tree.map(lambda x: with_shardings(x, rows), microbatch)

    def trace(self, microbatch: Any) -> tuple[Traced, Traced]:
        """The traced gradient program and optimizer program, for `abstract_inputs`."""
        state, microbatch = self.abstract_inputs(microbatch)
        gradient = self._select_trainable(state.params)
        number = jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated_sharding(self._mesh))
        with jax.set_mesh(self._mesh):
            inputs = microbatch, number, state.key
            names = jax.eval_shape(self._accumulate_fn, state.params, gradient, {}, *inputs)[1]
            sums = dict.fromkeys(names, number)
            accumulate = self._accumulate.trace(state.params, gradient, sums, *inputs)
            return accumulate, self._apply.trace(state, gradient, number)

    def lower(self, microbatch: Any) -> tuple[Lowered, Lowered]:
        """The programs of `trace`, ready to compile."""
        gradient, optimizer = self.trace(microbatch)
        with jax.set_mesh(self._mesh):
            return gradient.lower(), optimizer.lower()

    def score(self, params: Params, batch: Batch) -> tuple[Float[Array, "B T"], ...]:
        """The forward function's arrays of a packed batch, given this process's rows of it."""
        with jax.set_mesh(self._mesh):
            inputs = params, self.data_shard.put_global(batch, batch)
            outputs = PROGRAM_METER.run(self._score_program, self._mesh, inputs)
        return PROGRAM_METER.finish("score", outputs)


def fetch_metrics(metrics: dict[str, Array]) -> dict[str, float]:
    """Device metrics as numbers: sums over tokens become means, `loss`, `aux` and norms stay."""
    host = {name: float(value) for name, value in jax.device_get(metrics).items()}
    tokens = max(1.0, host.pop("tokens"))
    not_summed = ("loss", "aux", "gradient_norm", "gradient_spike", "nonfinite")
    scales = {name: 1.0 if name in not_summed or name.startswith(RATE) else tokens for name in host}
    return {**{name: x / scales[name] for name, x in host.items()}, "tokens": tokens}

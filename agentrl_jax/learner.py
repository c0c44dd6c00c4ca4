"""`Learner`: log-probs without whole-batch logits, and the sharded, donated, accumulated update."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.stages import Lowered, Traced
from jaxtyping import Array, Float, Int, Key

from agentrl_jax.batch import Batch
from agentrl_jax.policy import Params, Policy
from agentrl_jax.record import record
from agentrl_jax.sharding import ROWS, automatic, batch_sharding, per_shard, replicated, shards, weight_shardings
from agentrl_jax.shares import Share, place, share_of

LOGITS_AT_ONCE = 2**25  # floats on a device: 128 MiB of logits


@record
class TrainState:
    """All that training changes on the device; `extra` is what an algorithm adds (a frozen reference, critics, targets)."""

    step: Int[Array, ""]
    params: Params
    opt_state: Any
    key: Key[Array, ""]
    extra: Any = None


# (what was read [B, T] each, what the algorithm wraps the batch in) -> (loss per token, metrics per token)
TokenLoss = Callable[..., tuple[Array, dict[str, Array]]]
# (params, the `Batch` or what goes on from one, key of dropout) -> (arrays [B, T], the forward pass's own losses)
Read = Callable[[Params, Any, Any], tuple[tuple[Array, ...], Array | None]]


@runtime_checkable
class Model(Protocol):
    """What a learner trains: weights with their axes, and which of them may change. Every `Policy` is one."""

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any: ...

    def trainable(self) -> Any: ...


def token_logp(policy: Policy, params: Params, batch: Batch) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Log-prob of each token given all before it, and the entropy there, under the temperature it was sampled with.

    logp[t] = log_softmax(logits(hidden[t-1]) / temperature[t])[tokens[t]]; 0 in the first column and in a stem. Logits exist
    for one rematerialised chunk of tokens at a time, forward and backward.
    """
    return _logp_of(policy, params, batch, policy.apply(params, batch.inputs).hidden)


def likelihoods(policy: Policy) -> Read:
    """Log-probs and entropies of a policy, as `token_logp`."""

    def read(params: Params, batch: Batch, key: Array | None) -> tuple[tuple[Array, ...], Array | None]:
        output = policy.apply(params, batch.inputs, key=key)
        return _logp_of(policy, params, batch, output.hidden), output.aux

    return read


def _logp_of(policy: Policy, params: Params, batch: Batch, hidden: Float[Array, "B T D"]) -> tuple[Array, Array]:
    """`token_logp` from hidden states."""
    logp, entropy = over_vocabulary(functools.partial(_chosen, policy), 2, policy.vocab_size, params, batch, hidden)
    return logp, entropy


# (params, hidden [N, D], token [N], temperature [N]) -> arrays [N]
OfToken = Callable[[Params, Array, Array, Array], tuple[Array, ...]]


def over_vocabulary(
    of_token: OfToken, count: int, vocab_size: int, params: Params, batch: Batch, hidden: Float[Array, "B T D"]
) -> tuple[Float[Array, "B T"], ...]:
    """`count` numbers of each token given the hidden state before it, 0 in the first column and in a stem.

    What `of_token` makes of the whole vocabulary exists for one rematerialised chunk of tokens at a time. Every device takes its own
    rows in chunks, with `params` gathered over `fsdp` once.
    """

    dtypes = jax.tree.map(lambda x: x.dtype, params)

    def of_rows(wide: Params, hidden: Array, targets: Array, temperature: Array) -> tuple[Array, ...]:
        def one_chunk(*parts: Array) -> tuple[Array, ...]:
            return of_token(jax.tree.map(lambda x, dtype: x.astype(dtype), wide, dtypes), *parts)

        chunked = _in_chunks(one_chunk, vocab_size)
        found = chunked(hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1), temperature.reshape(-1))
        return tuple(x.reshape(targets.shape) for x in found)

    # The gradient of the head is summed over chunks and devices: in float32, whatever its own dtype.
    wide = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x, params)
    rows = ("rows", None)
    split = per_shard(of_rows, ((), (*rows, None), rows, rows), (rows,) * count, over=ROWS)
    first = batch.stem  # within a stem nothing is trained
    after = slice(first + 1, None)
    found = split(wide, hidden[:, first:-1], jnp.asarray(batch.tokens)[:, after], jnp.asarray(batch.temperature)[:, after])
    return tuple(jnp.pad(x, ((0, 0), (first + 1, 0))) for x in found)


def _chosen(
    policy: Policy, params: Params, hidden: Float[Array, "N D"], target: Int[Array, "N"], temperature: Float[Array, "N"]
) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
    """Log-prob of each target and entropy, by sums over the vocabulary alone: where that is split, they are all-reduced."""
    logits = policy.logits(params, hidden) / temperature[:, None]
    logits -= jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weights = jnp.exp(logits)
    total = jnp.sum(weights, axis=-1)
    here = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == target[:, None]
    logp = jnp.sum(jnp.where(here, logits, 0.0), axis=-1) - jnp.log(total)
    return logp, jnp.log(total) - jnp.sum(weights * logits, axis=-1) / total


def _in_chunks(fn: Callable[..., Any], vocab_size: int) -> Callable[..., Any]:
    """`fn` of arrays [N, ...], over so many of N at a time that a device holds `LOGITS_AT_ONCE` logits; recomputed backward."""

    def call(*parts: Array) -> Any:
        count = len(parts[0])
        wide = vocab_size / shards(jax.sharding.get_abstract_mesh(), ("tensor",))
        chunks = math.ceil(count * wide / LOGITS_AT_ONCE)
        if chunks <= 1:
            return fn(*parts)
        size = math.ceil(count / chunks)
        pad = chunks * size - count
        split = tuple(jnp.pad(x, ((0, pad), *((0, 0),) * (x.ndim - 1)), mode="edge").reshape(chunks, size, *x.shape[1:]) for x in parts)
        found = jax.lax.map(jax.checkpoint(lambda parts: fn(*parts)), split)
        return jax.tree.map(lambda x: x.reshape(-1)[:count], found)

    return call


class Learner:
    """Compiles one gradient program and one optimizer program for a model, what is read of it, a loss and a mesh.

    Any number of microbatches of one shape add up to one optimizer step, so nothing recompiles when rows vary.
    """

    def __init__(
        self, model: Model, tx: optax.GradientTransformation, loss: TokenLoss, mesh: Mesh, read: Read | None = None,
        score: Read | None = None,
    ) -> None:  # fmt: skip
        """Without `read` the model is a `Policy`, and the loss gets its log-probs and entropies. `score` is what the method of that name
        reads, where that is not all of it."""
        if read is None:
            assert isinstance(model, Policy), f"say what is read of a {type(model).__name__}"
            read = likelihoods(model)
        mesh = automatic(mesh)
        self._model, self._tx, self._loss, self._mesh, self._read = model, tx, loss, mesh, read
        self._metrics: tuple[str, ...] = ()
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        self._weights = weight_shardings(mesh, model.axes(), shapes)
        self._trained = model.trainable()
        chosen, everywhere = self._select(self._weights), replicated(mesh)
        self._moments = optax.tree_utils.tree_map_params(
            tx, lambda _, s: s, jax.eval_shape(tx.init, self._select(shapes)), chosen, transform_non_params=lambda _: everywhere
        )
        self._zeros = jax.jit(lambda p: jax.tree.map(jnp.zeros_like, self._select(p)), out_shardings=chosen)
        self._accumulate = jax.jit(self._accumulate_fn, donate_argnums=(1, 2), out_shardings=(chosen, None))
        self._apply = jax.jit(self._apply_fn, donate_argnums=0)
        self._key = jax.jit(lambda key, step, i: jax.random.fold_in(jax.random.fold_in(key, step), i), out_shardings=everywhere)
        self._score = jax.jit(lambda params, batch: (score or read)(params, batch, None)[0], out_shardings=batch_sharding(mesh))

    def _select(self, tree: Any) -> Any:
        """A tree like the parameters, with None (no leaf) in place of each that is frozen."""
        return jax.tree.map(lambda trained, x: x if trained else None, self._trained, tree)

    def init(self, key: Array, params: Params) -> TrainState:
        """A state around a copy of `params`, sharded over the mesh. Frozen weights have no moments."""
        params = jax.tree.map(place, params, self._weights)
        opt_state = jax.jit(self._tx.init, out_shardings=self._moments)(self._select(params))
        everywhere = replicated(self._mesh)
        return TrainState(step=place(jnp.int32(0), everywhere), params=params, opt_state=opt_state, key=place(key, everywhere))

    def _accumulate_fn(
        self, params: Params, gradient: Params, sums: dict[str, Array], batch: Any, share: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[Params, dict[str, Array]]:
        """Gradient and metrics with those of a microbatch added; `share` is 1 / the number of microbatches, `key` drops out."""

        def objective(trained: Params) -> tuple[Array, dict[str, Array]]:
            outputs, aux = self._read(_merged(trained, params), batch.batch, key)
            loss, metrics = self._loss(*outputs, batch)
            mask = jnp.asarray(batch.batch.action_mask)
            total = jnp.sum(jnp.where(mask, jnp.asarray(batch.batch.weight) * loss, 0.0))
            sums = {name: jnp.sum(jnp.where(mask, value, 0.0)) for name, value in metrics.items()}
            found = {"loss": total, "tokens": jnp.sum(mask.astype(jnp.float32)), **sums}
            return (total, found) if aux is None else (total + share * aux, {**found, "aux": share * aux})

        (_, new), g = jax.value_and_grad(objective, has_aux=True)(self._select(params))
        gradient = jax.tree.map(jnp.add, gradient, g)
        return gradient, {name: sums[name] + value if sums else value for name, value in new.items()}

    def _apply_fn(self, state: TrainState, gradient: Params) -> tuple[TrainState, Array]:
        trained = self._select(state.params)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            updates, opt_state = self._tx.update(gradient, state.opt_state, trained)
            params = _merged(optax.apply_updates(trained, updates), state.params)
            norm = optax.tree.norm(gradient)
        return TrainState(step=state.step + 1, params=params, opt_state=opt_state, key=state.key, extra=state.extra), norm

    @functools.cached_property
    def share(self) -> Share:
        """Which rows of its batches this process feeds."""
        return share_of(self._mesh)

    def update(self, state: TrainState, microbatches: Sequence[Any]) -> tuple[TrainState, dict[str, Array]]:
        """One optimizer step on sum(weight x loss) over all microbatches, each a record with a `batch` field.

        Of several processes each hands in its share of the rows, in equally many microbatches.

        The forward pass's own losses (`Output.aux`) are added as their mean over the microbatches. Returns metrics on the
        device: `loss` (without them), `aux` where there are any, `gradient_norm`, `tokens`, and sums over tokens of the loss's own.
        """
        with jax.set_mesh(self._mesh):
            gradient, sums = self._accumulated(state, microbatches)
            state, norm = self._apply(state, gradient)
        return state, {**sums, "gradient_norm": norm}

    def warm_up(self, state: TrainState, microbatch: Any) -> None:
        """Compile the gradient program for a microbatch of this shape; nothing is learned."""
        with jax.set_mesh(self._mesh):
            self._accumulated(state, [microbatch, microbatch])

    def _accumulated(self, state: TrainState, microbatches: Sequence[Any]) -> tuple[Params, dict[str, Any]]:
        """The gradient and the metrics of all microbatches together."""
        share = np.float32(1 / len(microbatches))  # a number made by JAX would wait for what the device has to do
        gradient = self._zeros(state.params)
        if not self._metrics:
            shapes = jax.eval_shape(self._accumulate_fn, state.params, gradient, {}, microbatches[0], share, state.key)[1]
            self._metrics = tuple(shapes)
        sums: dict[str, Any] = {name: np.float32(0) for name in self._metrics}
        for i, microbatch in enumerate(microbatches):
            key, rows = self._key(state.key, state.step, np.int32(i)), self.share.put(microbatch, microbatch.batch)
            gradient, sums = self._accumulate(state.params, gradient, sums, rows, share, key)
        return gradient, sums

    def described(self, microbatch: Any) -> tuple[TrainState, Any]:
        """A state and a microbatch as shapes with their shardings, for a mesh that need not exist.

        `microbatch` is a record as `update` takes it, of arrays or of `jax.ShapeDtypeStruct`s.
        """

        def shaped(tree: Any, shardings: Any) -> Any:
            return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)

        def fresh(key: Array) -> TrainState:
            params = self._model.init(key)
            return TrainState(step=jnp.int32(0), params=params, opt_state=self._tx.init(self._select(params)), key=key)

        everywhere, rows = replicated(self._mesh), batch_sharding(self._mesh)
        state = jax.eval_shape(fresh, jax.random.key(0))
        shardings = jax.tree.leaves((everywhere, self._weights, self._moments, everywhere))  # in the order of the state's fields
        state = shaped(state, jax.tree.unflatten(jax.tree.structure(state), shardings))
        return state, jax.tree.map(lambda x: shaped(x, rows), microbatch)

    def traced(self, microbatch: Any) -> tuple[Traced, Traced]:
        """The gradient and the optimizer program of an update of `described(microbatch)`."""
        state, microbatch = self.described(microbatch)
        gradient, number = self._select(state.params), jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated(self._mesh))
        with jax.set_mesh(self._mesh):
            names = jax.eval_shape(self._accumulate_fn, state.params, gradient, {}, microbatch, number, state.key)[1]
            sums = dict.fromkeys(names, number)
            return self._accumulate.trace(state.params, gradient, sums, microbatch, number, state.key), self._apply.trace(state, gradient)

    def lowered(self, microbatch: Any) -> tuple[Lowered, Lowered]:
        """The programs of `traced`, ready to compile."""
        gradient, optimizer = self.traced(microbatch)
        with jax.set_mesh(self._mesh):
            return gradient.lower(), optimizer.lower()

    def score(self, params: Params, batch: Batch) -> tuple[Float[Array, "B T"], ...]:
        """What is read of a packed batch, given this process's rows of it."""
        with jax.set_mesh(self._mesh):
            return self._score(params, self.share.put(batch, batch))


def _merged(trained: Params, params: Params) -> Params:
    """`params` with the weights that are not None in `trained` in their place."""
    return jax.tree.map(lambda new, old: old if new is None else new, trained, params, is_leaf=lambda x: x is None)


def fetch_metrics(metrics: dict[str, Array]) -> dict[str, float]:
    """Device metrics as numbers: sums over tokens become means, `loss`, `aux` and `gradient_norm` stay."""
    host = {name: float(value) for name, value in jax.device_get(metrics).items()}
    tokens = max(1.0, host.pop("tokens"))
    whole = ("loss", "aux", "gradient_norm", "gradient_spike")
    return {name: value if name in whole else value / tokens for name, value in host.items()} | {"tokens": tokens}

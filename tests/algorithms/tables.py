"""Tabular stand-ins: a policy whose next token follows from the last one, a critic that is a table, an engine of exact frequencies."""

import dataclasses
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hand_made import make_call

from agentrl_jax.context import FullHistory
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Cache, Inputs, Output
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Call, Key, Sampling
from agentrl_jax.workers import InProcess

TOKENS, END = 12, 10
AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling(budget=4))


@dataclasses.dataclass
class Descent(AdamWConfig):
    """Plain gradient descent, so that what moved is the gradient; rate 0 moves nothing."""

    def build(self, steps: int) -> optax.GradientTransformation:
        return optax.sgd(self.learning_rate)


@dataclasses.dataclass(frozen=True)
class Markov:
    """logits of the next token = a row of `table`, that of the last token."""

    vocab_size: int = TOKENS

    def init(self, key: Any) -> Any:
        return {"table": jax.random.normal(key, (TOKENS, TOKENS))}

    def axes(self) -> Any:
        return {"table": ("vocab", "embed")}

    def trainable(self) -> Any:
        return {"table": True}

    def apply(self, params: Any, inputs: Inputs, cache: Cache | None = None, key: Any = None) -> Output:
        return Output(hidden=jax.nn.one_hot(inputs.tokens, TOKENS))

    def logits(self, params: Any, hidden: Any) -> Any:
        return hidden @ params["table"]

    def init_cache(self, rows: int, positions: int) -> Cache:
        return Cache(keys=(), values=())

    def unstack(self, params: Any) -> Any:
        return params


@dataclasses.dataclass(frozen=True)
class Cells:
    """An encoder without weights, for a critic that reads the tokens itself."""

    def build(self, policy: Any) -> "Cells":
        return self

    def start(self, encoder: Any, params: Any, key: Any, mesh: Any) -> Any:
        return {}

    def tokens(self) -> None: ...

    def init(self, key: Any) -> Any:
        return {}

    def axes(self) -> Any:
        return {}

    def apply(self, params: Any, tokens: Any, mask: Any) -> Any:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class TableCritic:
    """Twin tables: Q over (last token of the state, first of the utterance), V over the former."""

    def build(self, encoder: Any) -> "TableCritic":
        return self

    def init(self, key: Any) -> Any:
        first, second = jax.random.split(key)
        q, v = jax.random.normal(first, (2, TOKENS, TOKENS)), jax.random.normal(second, (2, TOKENS))
        return {"encoder": {}, "q": q, "v": v}

    def axes(self) -> Any:
        return {"encoder": {}, "q": ("copies", "embed", None), "v": ("copies", None)}

    def encode(self, params: Any, tokens: Any, mask: Any) -> Any:
        """The first token's cell, then the last one's."""
        tokens, last = jnp.asarray(tokens), jnp.sum(jnp.asarray(mask).astype(jnp.int32), axis=1) - 1
        ends = tokens[:, 0], jnp.take_along_axis(tokens, last[:, None], axis=1)[:, 0]
        return jnp.concatenate([jax.nn.one_hot(one, TOKENS) for one in ends], axis=1)

    def q(self, params: Any, state: Any, action: Any) -> Any:
        return jnp.einsum("bs,ksa,ba->kb", state[:, TOKENS:], params["q"], action[:, :TOKENS])

    def v(self, params: Any, state: Any) -> Any:
        return jnp.einsum("bs,ks->kb", state[:, TOKENS:], params["v"])


class Even:
    """Implements `Engine`: the i-th prompt of a `sample` gets the i-th of some utterances, in turn, so that frequencies are exact."""

    places = 8

    def __init__(self, *utterances: list[int]) -> None:
        self.utterances, self.prompts, self.published = utterances, 0, 0

    def submit(self, ids: Any, sampling: Any, key: Key, parent: Any = None, images: Any = ()) -> "Future[Call]":
        self.prompts += 1
        future: Future[Call] = Future()
        future.set_result(make_call(ids, self.utterances[key[-2] % len(self.utterances)]))
        return future

    def release(self, call: Call) -> None: ...

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.published += 1

    def close(self) -> None: ...


def runtime_of(engine: Any) -> Runtime:
    return Runtime({"policy": engine}, {"policy": AGENT}, InProcess())


def logp_of(table: np.ndarray, tokens: list[int], start: int) -> float:
    """log p of the tokens from `start` on, by the table."""
    rows = table[tokens[start - 1 : -1]].astype(np.float64)
    rows = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return float(rows[np.arange(len(rows)), tokens[start:]].sum())

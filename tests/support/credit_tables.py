"""Tabular policy, critic and engine: next-token logits from the last token, Q and V tables, exact
sampling frequencies.
"""

import dataclasses
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from support.fake_engines import FakeEngine
from support.fixtures import make_call

from agentrl_jax.context import FullHistory
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.policy import KVCache, PolicyInputs, PolicyOutput
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, RandomKey, Sampling
from agentrl_jax.workers.pool import InlinePool

VOCAB_SIZE, END_TOKEN = 12, 10
AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling(budget=4))


@dataclasses.dataclass
class SGDConfig(AdamWConfig):
    """Plain gradient descent, so that a change of parameters is the gradient; rate 0 changes
    nothing.
    """

    def build(self, steps: int) -> optax.GradientTransformation:
        return optax.sgd(self.learning_rate)


@dataclasses.dataclass(frozen=True)
class MarkovPolicy:
    """The logits of the next token are a row of `table`, indexed by the last token."""

    vocab_size: int = VOCAB_SIZE
    supports_branches = False

    def init(self, key: Any) -> Any:
        return {"table": jax.random.normal(key, (VOCAB_SIZE, VOCAB_SIZE))}

    def axes(self) -> Any:
        return {"table": ("vocab", "embed")}

    def trainable(self) -> Any:
        return {"table": True}

    def apply(
        self, params: Any, inputs: PolicyInputs, cache: KVCache | None = None, key: Any = None
    ) -> PolicyOutput:
        return PolicyOutput(hidden=jax.nn.one_hot(inputs.tokens, VOCAB_SIZE))

    def logits(self, params: Any, hidden: Any) -> Any:
        return hidden @ params["table"]

    def init_cache(self, rows: int, positions: int) -> KVCache:
        return KVCache(keys=(), values=())

    def unstack(self, params: Any) -> Any:
        return params


@dataclasses.dataclass(frozen=True)
class WeightlessEncoder:
    """An encoder without weights, for a critic that is given the tokens themselves."""

    def build(self, policy: Any) -> "WeightlessEncoder":
        return self

    def initial_params(self, encoder: Any, params: Any, key: Any, mesh: Any) -> Any:
        return {}

    def build_tokenizer(self) -> None: ...

    def init(self, key: Any) -> Any:
        return {}

    def axes(self) -> Any:
        return {}

    def apply(self, params: Any, tokens: Any, mask: Any) -> Any:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class TabularCritic:
    """Twin tables: Q by (last token of the state, first token of the utterance), V by the last
    token of the state.
    """

    def build(self, encoder: Any) -> "TabularCritic":
        return self

    def init(self, key: Any) -> Any:
        first, second = jax.random.split(key)
        q, v = (
            jax.random.normal(first, (2, VOCAB_SIZE, VOCAB_SIZE)),
            jax.random.normal(second, (2, VOCAB_SIZE)),
        )
        return {"encoder": {}, "q": q, "v": v}

    def axes(self) -> Any:
        return {"encoder": {}, "q": ("copies", "embed", None), "v": ("copies", None)}

    def encode(self, params: Any, tokens: Any, mask: Any) -> Any:
        """One-hot vectors of the first and of the last token."""
        tokens, last = jnp.asarray(tokens), jnp.sum(jnp.asarray(mask).astype(jnp.int32), axis=1) - 1
        ends = tokens[:, 0], jnp.take_along_axis(tokens, last[:, None], axis=1)[:, 0]
        return jnp.concatenate([jax.nn.one_hot(end, VOCAB_SIZE) for end in ends], axis=1)

    def q(self, params: Any, state: Any, action: Any) -> Any:
        return jnp.einsum(
            "bs,ksa,ba->kb", state[:, VOCAB_SIZE:], params["q"], action[:, :VOCAB_SIZE]
        )

    def v(self, params: Any, state: Any) -> Any:
        return jnp.einsum("bs,ks->kb", state[:, VOCAB_SIZE:], params["v"])


class RoundRobinEngine(FakeEngine):
    """An engine in which the i-th prompt of a `sample` gets the i-th utterance, cyclically, so that
    frequencies are exact.
    """

    def __init__(self, *utterances: list[int]) -> None:
        self.utterances, self.num_prompts, self.num_published = utterances, 0, 0

    def submit(
        self, ids: Any, sampling: Any, key: RandomKey, parent: Any = None, images: Any = ()
    ) -> "Future[Call]":
        self.num_prompts += 1
        future: Future[Call] = Future()
        call = make_call(ids, self.utterances[self._index(key) % len(self.utterances)])
        future.set_result(dataclasses.replace(call, sampling=sampling, key=key))
        return future

    def _index(self, key: RandomKey) -> int:
        return key[-2]

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.num_published += 1


class SameStateEngine(RoundRobinEngine):
    """An engine in which the j-th call of a prompt gets the j-th utterance, cyclically."""

    def _index(self, key: RandomKey) -> int:
        return key[-1]


def make_runtime(engine: Any) -> Runtime:
    return Runtime({"policy": engine}, {"policy": AGENT}, InlinePool())


def table_logp(table: np.ndarray, tokens: list[int], start: int) -> float:
    """The log-prob of the tokens from `start` on, under the table."""
    rows = table[tokens[start - 1 : -1]].astype(np.float64)
    rows = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return float(rows[np.arange(len(rows)), tokens[start:]].sum())

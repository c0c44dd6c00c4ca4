"""`JointCritic`: values of utterances by a causal trunk that reads the whole episode once."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from agentrl_jax.models.critic_readout import values_at_positions
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig
from agentrl_jax.policy import Params, Policy, PolicyInputs
from agentrl_jax.pytree import AnyArray


@dataclasses.dataclass
class JointCriticConfig:
    """A policy's architecture as the trunk, with heads for Q and V on its hidden states."""

    ensemble_size: int = 2  # copies of each head
    # hidden 0: the trunk's width
    head: HeadConfig = dataclasses.field(default_factory=lambda: HeadConfig(layers=2, scale=1.0))
    fresh_trunk: bool = False  # initialize the trunk at random; off: from the policy's weights

    def build(self, policy: Policy) -> "JointCritic":
        """The critic on a trunk of the policy's architecture, which is trained with it."""
        shapes = jax.eval_shape(policy.init, jax.random.key(0))
        token = np.ones((1, 1), np.int32)
        inputs = PolicyInputs(tokens=token, positions=token - 1, segment_ids=token)
        hidden = jax.eval_shape(lambda params: policy.apply(params, inputs).hidden, shapes)
        width = hidden.shape[-1]
        head = dataclasses.replace(self.head, hidden=self.head.hidden or width)
        q_heads, v_heads = (CriticEnsemble(head.build(width), self.ensemble_size) for _ in range(2))
        return JointCritic(policy, q_heads, v_heads)

    def initial_params(self, critic: "JointCritic", params: Params, key: Key[Array, ""]) -> Params:
        """Fresh heads on the policy's weights `params`, or on a fresh trunk."""
        fresh = critic.init(key)
        return fresh if self.fresh_trunk else {**fresh, "trunk": params}


@dataclasses.dataclass(frozen=True, eq=False)
class JointCritic:
    """`V_k(s) = MLP'_k(h_s)` and `Q_k(s, a) = MLP_k(h_sa)`: h_s is the hidden state of the last
    token of a state, h_sa that of the last token of an utterance that continues it.

    One tree of parameters: `trunk`, `q` and `v`.
    """

    trunk: Policy
    q_heads: CriticEnsemble
    v_heads: CriticEnsemble

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        keys = jax.random.split(key, 3)
        return {
            "trunk": self.trunk.init(keys[0]),
            "q": self.q_heads.init(keys[1]),
            "v": self.v_heads.init(keys[2]),
        }

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        return {"trunk": self.trunk.axes(), "q": self.q_heads.axes(), "v": self.v_heads.axes()}

    def trainable(self) -> Any:
        """As `Policy.trainable`: of the trunk what it says, all of the heads."""
        heads = jax.eval_shape(
            lambda key: {"q": self.q_heads.init(key), "v": self.v_heads.init(key)},
            jax.random.key(0),
        )
        return {"trunk": self.trunk.trainable(), **jax.tree.map(lambda _: True, heads)}

    def read(
        self, params: Params, inputs: PolicyInputs, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "B T D"], Float[Array, ""] | None]:
        """Hidden states of packed rows, and an auxiliary loss of the trunk's forward pass."""
        output = self.trunk.apply(params["trunk"], inputs, key=key)
        return output.hidden, output.aux

    def q(
        self, params: Params, hidden: Float[Array, "B T D"], columns: Int[AnyArray, "B R"]
    ) -> Float[Array, "k B R"]:
        """Q_k at the last tokens of utterances; 0 where a column is -1."""
        return values_at_positions(self.q_heads, params["q"], hidden, columns)

    def v(
        self, params: Params, hidden: Float[Array, "B T D"], columns: Int[AnyArray, "B R"]
    ) -> Float[Array, "k B R"]:
        """V_k at the last tokens of states; 0 where a column is -1."""
        return values_at_positions(self.v_heads, params["v"], hidden, columns)

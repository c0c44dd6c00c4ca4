"""Twin critics that read whole episodes, with their target networks, as models of a `Learner`."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from agentrl_jax.algorithms.archer.episode_rows import EpisodeColumns
from agentrl_jax.algorithms.archer.twin_critic import TwinCritic
from agentrl_jax.learner.packing import Batch
from agentrl_jax.policy import Params, Policy, PolicyInputs
from agentrl_jax.pytree import pytree_dataclass


@runtime_checkable
class JointUtteranceCritic(Protocol):
    """An ensemble of k critics on a causal trunk, `models.joint_critic.JointCritic`."""

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any: ...

    def trainable(self) -> Any: ...

    def read(
        self, params: Params, inputs: PolicyInputs, key: Any = None
    ) -> tuple[Float[Array, "B T D"], Array | None]:
        """Hidden states of packed rows, and an auxiliary loss of the forward pass."""
        ...

    def q(self, params: Params, hidden: Any, columns: Any) -> Float[Array, "k B R"]:
        """Q_k at the last tokens of utterances, 0 where a column is negative."""
        ...

    def v(self, params: Params, hidden: Any, columns: Any) -> Float[Array, "k B R"]:
        """V_k at the last tokens of states, 0 where a column is negative."""
        ...


@runtime_checkable
class JointCriticBuilder(Protocol):
    """A config of the critic (`models.joint_critic.JointCriticConfig`)."""

    def build(self, policy: Policy) -> JointUtteranceCritic: ...

    def initial_params(self, critic: Any, params: Params, key: Any) -> Params:
        """The critic's first weights; `params` are the policy's."""
        ...


@pytree_dataclass
class EpisodeBatch(Batch):
    """Rows of episodes; as a `Batch` a row has a column for each turn."""

    columns: EpisodeColumns


@dataclass(frozen=True, eq=False)
class TwinJointCritic(TwinCritic):
    """A joint critic: one pass over a row gives the values of all its turns."""

    critic: JointUtteranceCritic

    def init_critic(self, key: Key[Array, ""]) -> Params:
        return self.critic.init(key)

    def critic_axes(self) -> Any:
        return self.critic.axes()

    def critic_trainable(self) -> Any:
        return self.critic.trainable()

    def forward(
        self, params: Params, batch: EpisodeBatch, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        """Without branches Qbar is that of the turns' own utterances."""
        online, target, columns = params["critic"], params["target"], batch.columns
        hidden, aux = self.critic.read(online, columns.episode_inputs, key)
        has_branches = columns.inputs.branch_length > 0
        inputs = columns.inputs if has_branches else columns.episode_inputs
        target_hidden, _ = self.critic.read(target, inputs)
        outputs = (
            self.critic.q(online, hidden, columns.utterance),
            self.critic.v(online, hidden, columns.state),
            self.critic.v(target, target_hidden, columns.next_state),
            self.critic.q(
                target, target_hidden, columns.branch if has_branches else columns.utterance
            ),
        )
        return tuple(x for values in outputs for x in values), aux

    def values(
        self, params: Params, batch: EpisodeBatch, key: Array | None
    ) -> tuple[tuple[Array, ...], None]:
        """Of the branches."""
        online, columns = params["critic"], batch.columns
        hidden, _ = self.critic.read(online, columns.inputs)
        q = self.critic.q(online, hidden, columns.branch)
        v = self.critic.v(online, hidden, columns.state)
        return (jnp.min(q, axis=0), jnp.min(v, axis=0)), None

    def min_target_q(self, target: Params, batch: EpisodeBatch) -> Float[Array, "B R"]:
        hidden, _ = self.critic.read(target, batch.columns.inputs)
        return jnp.min(self.critic.q(target, hidden, batch.columns.branch), axis=0)

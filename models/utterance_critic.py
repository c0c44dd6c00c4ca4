"""ArCHer's critic (Zhou et al. 2024, arXiv:2402.19446): V of texts and Q of whole utterances."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key

from agentrl_jax.models.critic_readout import last_positions
from agentrl_jax.models.encoder import EncoderConfig, PoolingFn, first_token_pooling
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig
from agentrl_jax.models.hf.encoders import load_encoder, read_encoder
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.policy import Encoder, Params, Policy, PolicyInputs
from agentrl_jax.pytree import AnyArray


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyTrunkEncoder:
    """A policy's own trunk as an `Encoder`: the hidden state of a text's last token."""

    policy: Policy

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters of the policy; to share a policy's, pass those to `apply` instead."""
        return self.policy.init(key)

    def axes(self) -> Any:
        return self.policy.axes()

    def apply(
        self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]
    ) -> Float[Array, "B D"]:
        real = jnp.asarray(mask).astype(jnp.int32)
        positions = jnp.maximum(jnp.cumsum(real, axis=1) - 1, 0)
        hidden = self.policy.apply(
            params, PolicyInputs(tokens=jnp.asarray(tokens), positions=positions, segment_ids=real)
        ).hidden
        last = jnp.maximum(last_positions(real, 1), 0)
        return jnp.take_along_axis(hidden, last[:, :, None], axis=1)[:, 0]


@dataclasses.dataclass
class PolicyTrunkEncoderConfig:
    """The critic's encoder is a separate copy of the policy's trunk: it starts from the policy's
    weights and takes the policy's ids.
    """

    def build(self, policy: Policy) -> PolicyTrunkEncoder:
        return PolicyTrunkEncoder(policy)

    def initial_params(
        self, encoder: PolicyTrunkEncoder, params: Params, key: Key[Array, ""], mesh: Mesh
    ) -> Params:
        """The policy's weights."""
        return params

    def build_tokenizer(self) -> None:
        """None: texts are encoded by the policy's tokenizer."""


@dataclasses.dataclass
class FreshEncoderConfig:
    """An encoder trained from scratch, with a tokenizer that needs no texts (`ByteTokenizer()`)."""

    encoder: EncoderConfig
    tokenizer: Callable[[Sequence[str]], Any]

    def build(self, policy: Policy) -> Encoder:
        return self.encoder.build(len(self.build_tokenizer()))

    def initial_params(
        self, encoder: Encoder, params: Params, key: Key[Array, ""], mesh: Mesh
    ) -> Params:
        """Fresh parameters."""
        return encoder.init(key)

    def build_tokenizer(self) -> Any:
        """The tokenizer."""
        return self.tokenizer(())


@dataclasses.dataclass
class PretrainedEncoderConfig:
    """The encoder and tokenizer of a BERT or RoBERTa folder, or of the model of that name: on the
    hub, or `sentence-transformers/all-MiniLM-L6-v2` from the extra `encoder`.
    """

    folder: str
    # `bert_pooling` is the released code's, with a layer that pre-training did not train
    pooling: PoolingFn = first_token_pooling
    compute_dtype: str = "float32"

    def build(self, policy: Policy) -> Encoder:
        return read_encoder(self.folder, self.pooling, compute_dtype=self.compute_dtype)

    def initial_params(
        self, encoder: Encoder, params: Params, key: Key[Array, ""], mesh: Mesh
    ) -> Params:
        """The folder's weights, sharded over the mesh; a pooling layer that it lacks is fresh."""
        return load_encoder(
            self.folder, mesh, self.pooling, compute_dtype=self.compute_dtype, key=key
        )[1]

    def build_tokenizer(self) -> Any:
        """The folder's tokenizer.

        Raises:
            UserError: there is none.
        """
        return FolderTokenizer(self.folder)(())


@dataclasses.dataclass
class UtteranceCriticConfig:
    """Heads on an encoder's vectors; with RoBERTa-base 1536 -> 768 -> 768 -> 1 for Q and 768 -> 768
    -> 768 -> 1 for V.
    """

    ensemble_size: int = 2  # copies of each head
    # hidden 0: the encoder's width
    head: HeadConfig = dataclasses.field(default_factory=lambda: HeadConfig(layers=2, scale=1.0))

    def build(self, encoder: Encoder) -> "EncoderUtteranceCritic":
        """The critic on an encoder, which is trained with it."""
        token = jnp.zeros((1, 1), jnp.int32)
        pooled = jax.eval_shape(
            lambda key: encoder.apply(encoder.init(key), token, token == 0), jax.random.key(0)
        )
        width = pooled.shape[-1]
        head = dataclasses.replace(self.head, hidden=self.head.hidden or width)
        return EncoderUtteranceCritic(
            encoder,
            CriticEnsemble(head.build(2 * width), self.ensemble_size),
            CriticEnsemble(head.build(width), self.ensemble_size),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class EncoderUtteranceCritic:
    """`Q_k(s, a) = MLP_k([e_s; e_a])` and `V_k(s) = MLP'_k(e_s)`; text and utterance are encoded
    separately.

    One tree of parameters: `encoder`, `q` and `v`.
    """

    encoder: Encoder
    q_heads: CriticEnsemble
    v_heads: CriticEnsemble

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        keys = jax.random.split(key, 3)
        return {
            "encoder": self.encoder.init(keys[0]),
            "q": self.q_heads.init(keys[1]),
            "v": self.v_heads.init(keys[2]),
        }

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        return {"encoder": self.encoder.axes(), "q": self.q_heads.axes(), "v": self.v_heads.axes()}

    def encode(
        self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]
    ) -> Float[Array, "B D"]:
        """The encoding e of each text or utterance, an input of `q` and `v`."""
        return self.encoder.apply(params["encoder"], tokens, mask)

    def q(
        self, params: Params, state: Float[Array, "B D"], action: Float[Array, "B D"]
    ) -> Float[Array, "k B"]:
        """Values of utterances given the texts before them."""
        return self.q_heads.apply(params["q"], jnp.concatenate([state, action], axis=-1))

    def v(self, params: Params, state: Float[Array, "B D"]) -> Float[Array, "k B"]:
        """Values of texts."""
        return self.v_heads.apply(params["v"], state)

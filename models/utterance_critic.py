"""ArCHer's critic (Zhou et al. 2024, arXiv:2402.19446): values of whole texts and of whole utterances."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key

from agentrl_jax.models.encoder import EncoderConfig, Pool, first_token
from agentrl_jax.models.heads import Copies, HeadConfig
from agentrl_jax.models.reading import last_positions
from agentrl_jax.models.roberta import describe_encoder, load_encoder
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.policy import Encoder, Inputs, Params, Policy
from agentrl_jax.record import AnyArray


@dataclasses.dataclass(frozen=True, eq=False)
class Trunk:
    """A policy's own trunk as an `Encoder`: the hidden state of a text's last token."""

    policy: Policy

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters of the policy; to share a policy's, put those in their place."""
        return self.policy.init(key)

    def axes(self) -> Any:
        return self.policy.axes()

    def apply(self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]) -> Float[Array, "B D"]:
        real = jnp.asarray(mask).astype(jnp.int32)
        positions = jnp.maximum(jnp.cumsum(real, axis=1) - 1, 0)
        hidden = self.policy.apply(params, Inputs(tokens=jnp.asarray(tokens), positions=positions, segment_ids=real)).hidden
        last = jnp.maximum(last_positions(real, 1), 0)
        return jnp.take_along_axis(hidden, last[:, :, None], axis=1)[:, 0]


@dataclasses.dataclass
class PolicyTrunk:
    """The critic's encoder is a policy's trunk of its own: it starts from the policy's weights and reads the policy's ids."""

    def build(self, policy: Policy) -> Trunk:
        return Trunk(policy)

    def start(self, encoder: Trunk, params: Params, key: Key[Array, ""], mesh: Mesh) -> Params:
        """A policy's weights."""
        return params

    def tokens(self) -> None:
        """None: the policy's own."""


@dataclasses.dataclass
class OwnEncoder:
    """A fresh encoder with a tokenizer of its own, which is made of no texts (`Bytes()`)."""

    encoder: EncoderConfig
    tokenizer: Callable[[Sequence[str]], Any]

    def build(self, policy: Policy) -> Encoder:
        return self.encoder.build(len(self.tokens()))

    def start(self, encoder: Encoder, params: Params, key: Key[Array, ""], mesh: Mesh) -> Params:
        """Fresh parameters."""
        return encoder.init(key)

    def tokens(self) -> Any:
        """The tokenizer."""
        return self.tokenizer(())


@dataclasses.dataclass
class PretrainedEncoder:
    """The encoder in a folder of the RoBERTa family, or of that name on the hub; the folder holds its tokenizer."""

    folder: str
    pool: Pool = first_token  # `encoder.pooled` is the released code's, with a layer that pre-training did not train
    compute_dtype: str = "float32"

    def build(self, policy: Policy) -> Encoder:
        return describe_encoder(self.folder, self.pool, compute_dtype=self.compute_dtype)

    def start(self, encoder: Encoder, params: Params, key: Key[Array, ""], mesh: Mesh) -> Params:
        """The folder's weights, sharded over the mesh; a pooling layer that it lacks is fresh."""
        return load_encoder(self.folder, mesh, self.pool, compute_dtype=self.compute_dtype, key=key)[1]

    def tokens(self) -> Any:
        """The folder's tokenizer. Raises UserError where there is none."""
        return FolderTokenizer(self.folder)(())


@dataclasses.dataclass
class UtteranceCriticConfig:
    """Heads on an encoder's vectors; with RoBERTa-base 1536 -> 768 -> 768 -> 1 for Q and 768 -> 768 -> 768 -> 1 for V."""

    copies: int = 2  # of each head
    head: HeadConfig = dataclasses.field(default_factory=lambda: HeadConfig(layers=2, scale=1.0))  # hidden 0: the encoder's width

    def build(self, encoder: Encoder) -> "UtteranceCritic":
        """The critic on an encoder that it trains."""
        token = jnp.zeros((1, 1), jnp.int32)
        pooled = jax.eval_shape(lambda key: encoder.apply(encoder.init(key), token, token == 0), jax.random.key(0))
        width = pooled.shape[-1]
        head = dataclasses.replace(self.head, hidden=self.head.hidden or width)
        return UtteranceCritic(encoder, Copies(head.build(2 * width), self.copies), Copies(head.build(width), self.copies))


@dataclasses.dataclass(frozen=True, eq=False)
class UtteranceCritic:
    """`Q_k(s, a) = MLP_k([e_s; e_a])` and `V_k(s) = MLP'_k(e_s)`; text and utterance are encoded apart.

    One tree of parameters: `encoder`, `q` and `v`.
    """

    encoder: Encoder
    q_heads: Copies
    v_heads: Copies

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        keys = jax.random.split(key, 3)
        return {"encoder": self.encoder.init(keys[0]), "q": self.q_heads.init(keys[1]), "v": self.v_heads.init(keys[2])}

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per array."""
        return {"encoder": self.encoder.axes(), "q": self.q_heads.axes(), "v": self.v_heads.axes()}

    def encode(self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]) -> Float[Array, "B D"]:
        """e of each text or utterance; made once, it serves `q` and `v`."""
        return self.encoder.apply(params["encoder"], tokens, mask)

    def q(self, params: Params, state: Float[Array, "B D"], action: Float[Array, "B D"]) -> Float[Array, "k B"]:
        """Values of utterances given the texts before them."""
        return self.q_heads.apply(params["q"], jnp.concatenate([state, action], axis=-1))

    def v(self, params: Params, state: Float[Array, "B D"]) -> Float[Array, "k B"]:
        """Values of texts."""
        return self.v_heads.apply(params["v"], state)

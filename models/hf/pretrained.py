"""A Hugging Face model as the policy of an experiment."""

from dataclasses import dataclass, field, replace

from jax.sharding import Mesh
from jaxtyping import Array, Key

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.decoder_architecture import SAVED_ACTIVATIONS
from agentrl_jax.models.hf.folder import load, read_decoder
from agentrl_jax.models.vision.policy import VisionLanguageConfig
from agentrl_jax.policy import Params, Policy


@dataclass
class PretrainedDecoder:
    """The decoder in a folder, or of that name: `agentrl/base-4m`, or one on the hub where there is
    a network.
    """

    folder: str
    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    # see `DecoderConfig.saved_activations`
    saved_activations: tuple[str, ...] | None = SAVED_ACTIVATIONS
    # parts of a model that sees which are not trained: see `VisionLanguageConfig`
    frozen: tuple[str, ...] = field(default=(), metadata=OMITTED_AT_DEFAULT)

    def build(self, vocab_size: int) -> Decoder:
        """The policy, from the folder's config.json alone.

        Raises:
            UserError: there is no such model, the tokenizer has more tokens than it, or parts are
                frozen that it does not have.
        """
        policy = read_decoder(self.folder, self.param_dtype, self.compute_dtype)
        if vocab_size > policy.vocab_size:
            raise UserError(
                f"the tokenizer has {vocab_size} tokens, the model in {self.folder} only "
                f"{policy.vocab_size}"
            )
        config = replace(policy.config, saved_activations=self.saved_activations)
        if isinstance(config, VisionLanguageConfig):
            config = replace(config, frozen=self.frozen)
        elif self.frozen:
            raise UserError(
                f"the model in {self.folder} has no vision tower: freezing parts of it "
                f"({', '.join(self.frozen)}) is not supported"
            )
        return replace(config.build(policy.vocab_size), origin=policy.origin)

    def initial_params(self, policy: Policy, key: Key[Array, ""], mesh: Mesh) -> Params:
        """The folder's weights, sharded over the mesh."""
        return load(self.folder, mesh, self.param_dtype, self.compute_dtype)[1]

"""`PlanSpec`: the model, its update and its engine to plan. Every field is a flag.

What a method builds is imported there: --help reads only the flags.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option

if TYPE_CHECKING:
    from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
    from agentrl_jax.distributed.sharding import MeshConfig
    from agentrl_jax.inference.engine_config import EngineConfig
    from agentrl_jax.learner.image_rows import ImageRows
    from agentrl_jax.models.adapters import LoraPolicy
    from agentrl_jax.models.decoder import Decoder


@dataclass
class ModelSpec:
    """A decoder, by folder, preset or sizes."""

    model: str = option(
        "", "The folder of a Hugging Face model, or its name on the hub where there is a network."
    )
    preset: str = option("", "Or the name of a function of agentrl_jax.models.presets.")
    sizes: str = option(
        "",
        "Fields of DecoderConfig and the vocabulary, layers=3,vocab=512: over those of the "
        "model, or alone.",
    )
    param_dtype: str = option("float32", "Dtype of weights, gradient and the optimizer's moments.")
    compute_dtype: str = option("bfloat16", "Dtype of activations and the cache.")
    saved_activations: str = option(
        "",
        "What a block saves for its backward pass, as query,key,value,gate,up; empty: only its "
        "input; all: everything.",
    )
    frozen: str = option(
        "", "Parts of a model that sees which are not trained: tower,projector,decoder."
    )
    rank: int = option(
        0, "Rank of LoRA adapters on all projections; 0: every weight is trained.", 0
    )
    quantize: str = option(
        "", "Format of the frozen base under adapters: nf4 or int8; empty: dense."
    )

    def decoder(self) -> "Decoder":
        """The decoder without adapters.

        Raises:
            UserError: none or several are named, or its sizes are invalid.
        """
        from agentrl_jax.launch.plans.model_shapes import load_preset, parse_sizes
        from agentrl_jax.models.decoder import DecoderConfig
        from agentrl_jax.models.hf import folder
        from agentrl_jax.models.vision.policy import VisionLanguageConfig

        if self.model and self.preset:
            raise UserError(
                "give a model's folder with --model=..., or one of --preset=..., not both"
            )
        if not (self.model or self.preset or self.sizes):
            raise UserError(
                "give a model's folder with --model=..., or one of --preset=..., or "
                "--sizes=layers=3,width=256,..."
            )
        if self.model:
            parsed = folder.read_decoder(self.model)
            config, vocabulary = parsed.config, parsed.vocab_size
        elif self.preset:
            config, vocabulary = load_preset(self.preset)
        else:
            config, vocabulary = DecoderConfig(), 1024
        fields = parse_sizes(self.sizes)
        vocabulary = fields.pop("vocab", vocabulary)
        saved = (
            None
            if self.saved_activations == "all"
            else tuple(name for name in self.saved_activations.split(",") if name)
        )
        if self.frozen:
            if not isinstance(config, VisionLanguageConfig):
                raise UserError(f"--frozen={self.frozen}: the model has no vision tower")
            config = replace(config, frozen=tuple(self.frozen.split(",")))
        return replace(
            config,
            **fields,
            param_dtype=self.param_dtype,
            compute_dtype=self.compute_dtype,
            saved_activations=saved,
        ).build(vocabulary)

    def policy(self) -> "Decoder | LoraPolicy":
        """The decoder, with its adapters if it has any. Raises UserError as `decoder` does."""
        from agentrl_jax.models.adapters import LoraConfig, LoraPolicy
        from agentrl_jax.models.quantized import int8, nf4

        quantizers = {"": None, "nf4": nf4, "int8": int8}
        if self.quantize not in quantizers or (self.quantize and not self.rank):
            raise UserError(f"--quantize={self.quantize} needs --rank, and is one of nf4 and int8")
        decoder = self.decoder()
        if not self.rank:
            return decoder
        return LoraPolicy(
            decoder, LoraConfig(decoder.config, self.rank, quantize=quantizers[self.quantize])
        )


@dataclass
class UpdateSpec:
    """One step of GRPO: so many microbatches, then the optimizer."""

    data: int = option(
        1, "The mesh's data axis; -1: all remaining devices. Slices are split along it."
    )
    fsdp: int = option(-1, "The fsdp axis.")
    expert: int = option(1, "The expert axis.")
    tensor: int = option(1, "The tensor axis.")
    rows: int = option(64, "Packed rows of a microbatch, on all chips together.", 1)
    length: int = option(4096, "Tokens of a row.", 1)
    microbatches: int = option(1, "Gradient programs before the optimizer's.", 1)
    stochastic_rounding: bool = option(
        False,
        "The optimizer rounds weights and moments at random: for a narrow --param_dtype.",
    )
    images: int = option(0, "Square images of a row; 0: rows of text.", 0)
    image_pixels: int = option(448, "A side of each of them.", 1)
    kl: float = option(
        0.0, "Coefficient of the KL penalty; above 0 there is a frozen copy of the weights.", 0.0
    )

    def mesh(self) -> "MeshConfig":
        from agentrl_jax.distributed.sharding import MeshConfig

        return MeshConfig(self.data, self.fsdp, self.expert, self.tensor)

    def algorithm_config(self) -> "PolicyGradientConfig":
        from agentrl_jax.algorithms.losses.regularizers import KL
        from agentrl_jax.algorithms.methods import grpo
        from agentrl_jax.learner.optimizer import AdamWConfig, StochasticRounding

        adamw = AdamWConfig()
        return grpo(
            optimizer=StochasticRounding(adamw) if self.stochastic_rounding else adamw,
            bin_length=self.length,
            microbatch=self.rows,
            regularizers={"kl": KL(self.kl)} if self.kl else {},
        )


@dataclass
class EngineSpec:
    """An engine on the chips of one machine: what `LocalEngine` compiles."""

    engine_topology: str = option("", "The chips of one engine; empty: those of one machine.")
    engine_data: int = option(1, "The engine's data axis; -1: all remaining devices.")
    engine_expert: int = option(1, "Its expert axis.")
    engine_tensor: int = option(-1, "Its tensor axis.")
    engine_rows: int = option(16, "Calls that one engine decodes at once.", 1)
    parked: int = option(0, "Parked slots: further episodes whose cache stays on the chip.", 0)
    positions: int = option(4096, "Tokens of the longest prompt with its action.", 2)
    engine_dtype: str = option("", "Dtype of its matrices; empty: the compute dtype.")
    chunk: int = option(256, "Prompt tokens of a row that one prefill program takes.", 1)
    separate_chips: bool = option(
        False,
        "Engines have their own chips; otherwise every chip holds the learner's state and theirs.",
    )

    def engine_config(self) -> "EngineConfig":
        from agentrl_jax.distributed.sharding import MeshConfig
        from agentrl_jax.inference.engine_config import EngineConfig

        mesh = MeshConfig(
            data=self.engine_data, expert=self.engine_expert, tensor=self.engine_tensor
        )
        return EngineConfig(
            rows=self.engine_rows,
            parked_slots=self.parked,
            positions=self.positions,
            prefill_chunk=self.chunk,
            dtype=self.engine_dtype,
            mesh=mesh,
        )


@dataclass
class PlanSpec(EngineSpec, UpdateSpec, ModelSpec):
    """Model, update, engine and the chips."""

    topology: str = option(
        "", "The chips of the update: v5e:8x8, v5p:4x4x4, or several slices as '2x v5e:4x4'."
    )
    programs: str = option(
        "update,prefill,decode",
        "Which programs are compiled: update, publish, encode, prefill, decode, move; encode is "
        "that of an image.",
    )

    def image_rows(self) -> "ImageRows | None":
        """The images of a row; None: there are none.

        Raises:
            UserError: the model sees none.
        """
        from agentrl_jax.images.processor import FixedSize, ImageProcessor
        from agentrl_jax.learner.image_rows import ImageRows
        from agentrl_jax.models.vision.cost import square_side
        from agentrl_jax.policy import image_format

        if not self.images:
            return None
        form = image_format(self.decoder())
        if form is None:
            raise UserError(f"--images={self.images}: the model has no vision tower")
        side = square_side(form, self.image_pixels)
        sizes = form.patch_size, form.merge_size, form.temporal_patch_size
        processor = ImageProcessor(FixedSize(side * form.patch_size), *sizes)
        return ImageRows(processor, self.images * side**2)

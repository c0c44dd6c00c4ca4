"""What is planned: a model, the shape of its update, the shape of its engine. Every field is a flag."""

import inspect
from dataclasses import dataclass, replace
from typing import Any

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.errors import UserError
from agentrl_jax.launch.options import option
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models import folder, presets
from agentrl_jax.models.adapters import Adapted, LoraConfig
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.models.quantised import int8, nf4
from agentrl_jax.sharding import MeshConfig

QUANTISED = {"": None, "nf4": nf4, "int8": int8}


@dataclass
class Model:
    """A decoder, by folder, preset or sizes."""

    model: str = option("", "The folder of a Hugging Face model, or its name on the hub where there is a network.")
    preset: str = option("", "Or the name of a function of agentrl_jax.models.presets.")
    sizes: str = option("", "Fields of DecoderConfig and the vocabulary, layers=3,vocab=512: over those of the model, or alone.")
    param_dtype: str = option("float32", "Of the weights, the gradient, the optimizer's moments and the engine's copy.")
    compute_dtype: str = option("bfloat16", "Of activations and the cache.")
    kept: str = option("", "What a block keeps for its backward pass, as query,key,value,gate,up; empty: its input alone; all: everything.")
    rank: int = option(0, "Rank of LoRA adapters on all projections; 0: every weight is trained.", 0)
    quantise: str = option("", "How adapters' base is held: nf4 or int8; empty: dense.")

    def decoder(self) -> Decoder:
        """The decoder alone. Raises UserError where it is not named, or named twice, or its sizes make no sense."""
        if self.model and self.preset:
            raise UserError("give a model's folder with --model=..., or one of --preset=..., not both")
        if not (self.model or self.preset or self.sizes):
            raise UserError("give a model's folder with --model=..., or one of --preset=..., or --sizes=layers=3,width=256,...")
        if self.model:
            found = folder.describe(self.model)
            config, vocabulary = found.config, found.vocab_size
        elif self.preset:
            config, vocabulary = preset(self.preset)
        else:
            config, vocabulary = DecoderConfig(), 1024
        fields = numbers(self.sizes)
        vocabulary = fields.pop("vocab", vocabulary)
        kept = None if self.kept == "all" else tuple(name for name in self.kept.split(",") if name)
        return replace(config, **fields, param_dtype=self.param_dtype, compute_dtype=self.compute_dtype, kept=kept).build(vocabulary)

    def policy(self) -> Decoder | Adapted:
        """The decoder, with its adapters if it has any. Raises UserError as `decoder` does."""
        if self.quantise not in QUANTISED or (self.quantise and not self.rank):
            raise UserError(f"--quantise={self.quantise} needs --rank, and is one of nf4 and int8")
        decoder = self.decoder()
        if not self.rank:
            return decoder
        return Adapted(decoder, LoraConfig(decoder.config, self.rank, quantise=QUANTISED[self.quantise]))


@dataclass
class Update:
    """One step of GRPO: so many microbatches, then the optimizer."""

    data: int = option(1, "The mesh's data axis; -1: what is left. Slices are apart along it.")
    fsdp: int = option(-1, "The fsdp axis.")
    expert: int = option(1, "The expert axis.")
    tensor: int = option(1, "The tensor axis.")
    rows: int = option(64, "Packed rows of a microbatch, on all chips together.", 1)
    length: int = option(4096, "Tokens of a row.", 1)
    microbatches: int = option(1, "Gradient programs before the optimizer's.", 1)
    kl: float = option(0.0, "Coefficient of the KL penalty; above 0 a frozen copy of the weights is held.", 0.0)

    def mesh(self) -> MeshConfig:
        return MeshConfig(self.data, self.fsdp, self.expert, self.tensor)

    def method(self) -> PolicyGradientConfig:
        return grpo(bin_length=self.length, microbatch=self.rows, regularisers={"kl": KL(self.kl)} if self.kl else {})


@dataclass
class Serving:
    """An engine on the chips of one host: what `LocalEngine` compiles."""

    engine_topology: str = option("", "The chips of one engine; empty: those of one host.")
    engine_data: int = option(1, "The engine's data axis; -1: what is left.")
    engine_expert: int = option(1, "Its expert axis.")
    engine_tensor: int = option(-1, "Its tensor axis.")
    engine_rows: int = option(16, "Calls at once in one engine.", 1)
    parked: int = option(0, "Episodes beside them whose cache is kept.", 0)
    positions: int = option(4096, "Tokens of the longest prompt and action.", 2)
    chunk: int = option(256, "Prompt tokens of a row that one prefill program takes.", 1)
    apart: bool = option(False, "Engines have chips of their own; else the learner's state and theirs share every chip.")

    def engine(self) -> EngineConfig:
        mesh = MeshConfig(data=self.engine_data, expert=self.engine_expert, tensor=self.engine_tensor)
        return EngineConfig(rows=self.engine_rows, parked=self.parked, positions=self.positions, chunk=self.chunk, mesh=mesh)


@dataclass
class Subject(Serving, Update, Model):
    """All of it, and the chips."""

    topology: str = option("", "The chips of the update: v5e:8x8, v5p:4x4x4, or several slices as '2x v5e:4x4'.")
    programs: str = option("update,prefill,decode", "Which programs are compiled: update, publish, prefill, decode, move.")


def preset(name: str) -> presets.Preset:
    """A published shape. Raises UserError where there is none of that name."""
    known = {name: make for name, make in inspect.getmembers(presets, inspect.isfunction) if make.__module__ == presets.__name__}
    known = {name: make for name, make in known.items() if not name.startswith("_")}
    if name not in known:
        raise UserError(f"there is no preset {name!r}, only {', '.join(known)}")
    return known[name]()


def numbers(text: str) -> dict[str, Any]:
    """layers=3,vocab=512  ->  {"layers": 3, "vocab": 512}

    Raises:
        UserError: it is written otherwise, or names no whole number of a decoder.
    """
    known = [name for name, value in vars(DecoderConfig()).items() if type(value) in (int, bool)]
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in (*known, "vocab") or not value.isdigit():
            raise UserError(f"--sizes takes name=number for {', '.join([*known, 'vocab'])}, not {part!r}")
        found[name] = bool(int(value)) if type(getattr(DecoderConfig(), name, 0)) is bool else int(value)
    return found

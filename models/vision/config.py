"""What a vision tower is made of; those of Qwen2.5-VL, Qwen3-VL and Gemma 3 are values of one
`VisionConfig`.
"""

from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.models.layers import Activation, gelu, gelu_exact


@dataclass
class VisionConfig:
    """The sizes and options of a vision transformer and its projector; the defaults are a small one
    of Qwen3-VL's kind.
    """

    layers: int = 2
    width: int = 64
    hidden: int = 128  # inner width of the MLP
    heads: int = 4  # divides width
    patch_size: int = 8  # pixels a side
    temporal_patch_size: int = 2  # frames of a patch
    channels: int = 3
    merge_size: int = 2  # patches a side of the square that becomes one token of the decoder
    rms_norm: bool = False  # RMSNorm (Qwen2.5-VL); False: LayerNorm
    norm_eps: float = 1e-6
    gated_mlp: bool = False  # activation(x gate) * (x up), then down; False: activation(x up)
    activation: Activation = gelu
    patch_bias: bool = True
    fused_qkv: bool = True  # one matrix for query, key and value; False: three (SigLIP)
    rope_theta: float = 10_000.0  # of rotary rows and columns; 0: none
    # entries a side of a learned table of positions, interpolated to each image; 0: no table
    position_side: int = 16
    fixed_side: int = 0  # patches a side of every image (SigLIP); 0: any
    window: int = 0  # patches a side of the windows that layers attend within; 0: whole frames
    full_layers: tuple[int, ...] = ()  # layers that attend to whole frames all the same
    # layers after which features are taken for the decoder's first layers (DeepStack, Qwen3-VL)
    deepstack_layers: tuple[int, ...] = ()
    final_norm: bool = False  # a norm before the projector (SigLIP)
    # the projector: the mean of a square's patches, RMSNorm and a matrix (Gemma 3); False: the
    # square's patches, concatenated, through an MLP (Qwen)
    average_pooling: bool = False
    projector_activation: Activation = gelu_exact

    @property
    def head_size(self) -> int:
        return self.width // self.heads


def check_vision_config(config: VisionConfig) -> None:
    """Raise `UserError` for the first value that makes no sense."""
    c = config
    sizes = (
        "layers", "width", "hidden", "heads", "patch_size", "temporal_patch_size", "channels",
        "merge_size",
    )  # fmt: skip
    for name in sizes:
        if getattr(c, name) < 1:
            raise UserError(
                f"The vision tower's {name} must be at least 1, not {getattr(c, name)}."
            )
    if c.width % c.heads:
        raise UserError(
            f"The vision tower's width ({c.width}) must be a multiple of its heads ({c.heads})."
        )
    if c.rope_theta < 0 or (c.rope_theta and c.head_size % 4):
        raise UserError(
            "Rotary rows and columns need rope_theta > 0 and a head size that is a multiple of 4, "
            f"not {c.rope_theta} and {c.head_size}; rope_theta 0 does without."
        )
    if not c.rope_theta and not c.position_side:
        raise UserError("The vision tower needs positions: a rope_theta, a position_side or both.")
    if c.norm_eps <= 0:
        raise UserError(f"The vision tower's norm_eps must be positive, not {c.norm_eps}.")
    for name in ("window", "position_side", "fixed_side"):
        if getattr(c, name) < 0:
            raise UserError(
                f"The vision tower's {name} must not be negative, not {getattr(c, name)}."
            )
    if c.window % c.merge_size or c.fixed_side % c.merge_size:
        raise UserError(
            f"The vision tower's window ({c.window}) and fixed_side ({c.fixed_side}) must be "
            f"multiples of its merge_size ({c.merge_size})."
        )
    for name in ("full_layers", "deepstack_layers"):
        layers = getattr(c, name)
        if list(layers) != sorted({i for i in layers if 0 <= i < c.layers}):
            raise UserError(
                f"The vision tower's {name} must rise and lie within its {c.layers} layers, "
                f"not {layers}."
            )


@dataclass(frozen=True)
class VisionStack:
    """Consecutive layers of the tower, stacked in one tree of parameters and scanned."""

    name: str  # of that tree
    start: int  # index of its first layer
    layers: int
    has_features: bool  # whether deepstack features are taken after its last layer


def vision_stacks(config: VisionConfig) -> list[VisionStack]:
    """The tower's layers from first to last, split after each of `deepstack_layers`."""
    stops = sorted({*(i + 1 for i in config.deepstack_layers), config.layers})
    return [
        VisionStack(f"layers_{n}" if n else "layers", i, j - i, j - 1 in config.deepstack_layers)
        for n, (i, j) in enumerate(zip([0, *stops], stops))
    ]

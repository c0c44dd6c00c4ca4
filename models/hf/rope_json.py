"""Rotary embeddings in config.json: `rope_parameters` to `Rope` and back."""

from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.models.rope import LinearRope, Llama3Rope, Rope, YarnRope


def rope_from_json(p: dict[str, Any]) -> Rope:
    """The rope that a `rope_parameters` entry describes.

    Raises:
        UserError: its kind is not supported.
    """
    kind, theta = p.get("rope_type", "default"), float(p["rope_theta"])
    if p.get("partial_rotary_factor", 1.0) != 1.0:
        raise UserError(
            "config.json: rotating only a part of each head (partial_rotary_factor) "
            "is not supported"
        )
    if kind == "default":
        return Rope(theta)
    needed = {
        "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
        "yarn": ("factor",),
    }
    for name in (
        *needed.get(kind, ()),
        *(("original_max_position_embeddings",) if kind in ("llama3", "yarn") else ()),
    ):
        if not p.get(name):
            raise UserError(f"config.json: a rope of type {kind!r} needs a {name}")
    if kind == "linear":
        return LinearRope(theta, float(p["factor"]))
    if kind == "llama3":
        factor, low, high = (
            float(p[name]) for name in ("factor", "low_freq_factor", "high_freq_factor")
        )
        return Llama3Rope(theta, factor, low, high, int(p["original_max_position_embeddings"]))
    if kind == "yarn":
        if p.get("mscale") or p.get("mscale_all_dim"):
            raise UserError("config.json: yarn with mscale (DeepSeek's) is not supported")
        fast, slow = float(p.get("beta_fast") or 32), float(p.get("beta_slow") or 1)
        attention, original = (
            float(p.get("attention_factor") or 0),
            int(p["original_max_position_embeddings"]),
        )
        return YarnRope(
            theta,
            float(p["factor"]),
            original,
            fast,
            slow,
            attention,
            bool(p.get("truncate", True)),
        )
    raise UserError(
        f"config.json: rope of type {kind!r} is not supported, "
        "only default, linear, llama3 and yarn"
    )


def rope_to_json(rope: Rope) -> dict[str, Any]:
    """The inverse of `rope_from_json`."""
    p: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
    if rope.sections:
        p |= {"mrope_section": list(rope.sections)}
        p |= {"mrope_interleaved": True} if rope.interleaved else {}
    if isinstance(rope, LinearRope):
        p |= {"rope_type": "linear", "factor": rope.factor}
    if isinstance(rope, Llama3Rope):
        p |= {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
        }
        p |= {"original_max_position_embeddings": rope.original_max_positions}
    if isinstance(rope, YarnRope):
        p |= {
            "rope_type": "yarn",
            "factor": rope.factor,
            "beta_fast": rope.beta_fast,
            "beta_slow": rope.beta_slow,
            "truncate": rope.truncate,
        }
        p |= {"original_max_position_embeddings": rope.original_max_positions} | (
            {"attention_factor": rope.attention_factor} if rope.attention_factor else {}
        )
    return p

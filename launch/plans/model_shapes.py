"""The shapes of models by the name of a preset, or by sizes on the command line."""

import inspect
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.models import presets
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.vision import presets as vision_presets

PRESET_MODULES = (presets, vision_presets)


def load_preset(name: str) -> tuple[DecoderConfig, int]:
    """A published model shape. Raises UserError for an unknown name."""
    known = {
        name: make
        for module in PRESET_MODULES
        for name, make in inspect.getmembers(module, inspect.isfunction)
        if make.__module__ == module.__name__
    }
    known = {name: make for name, make in known.items() if not name.startswith("_")}
    if name not in known:
        raise UserError(f"there is no preset {name!r}, only {', '.join(known)}")
    return known[name]()


def parse_sizes(text: str) -> dict[str, Any]:
    """layers=3,vocab=512  ->  {"layers": 3, "vocab": 512}

    Raises:
        UserError: it has another form, or names no integer field of `DecoderConfig`.
    """
    known = [name for name, value in vars(DecoderConfig()).items() if type(value) in (int, bool)]
    parsed: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in (*known, "vocab") or not value.isdigit():
            raise UserError(
                f"--sizes takes name=number for {', '.join([*known, 'vocab'])}, not {part!r}"
            )
        parsed[name] = (
            bool(int(value)) if type(getattr(DecoderConfig(), name, 0)) is bool else int(value)
        )
    return parsed

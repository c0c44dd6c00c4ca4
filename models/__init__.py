"""Weights and forward passes: decoder families, Hugging Face folders, and tokenizers made on the spot."""

from agentrl_jax.models.folder import load, save

__all__ = ["load", "save"]

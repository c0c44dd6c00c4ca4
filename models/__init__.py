"""Weights and forward passes: decoder families, critics, Hugging Face folders, and tokenizers."""

from agentrl_jax.models.hf.folder import load, save

__all__ = ["load", "save"]

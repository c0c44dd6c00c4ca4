"""Hugging Face folders: configs, safetensors, PEFT adapters."""

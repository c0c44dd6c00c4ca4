"""Vision towers and policies that see: Qwen2.5-VL, Qwen3-VL, Gemma 3."""

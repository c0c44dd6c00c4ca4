"""The sizes of the decoder and engine that tests of `agentrl-plan` compile."""

from typing import Any

SIZES = "layers=2,width=256,hidden=512,heads=4,kv_heads=4,head_size=64,vocab=1024"
SMALL: dict[str, Any] = {
    "sizes": SIZES,
    "length": 128,
    "positions": 256,
    "engine_rows": 4,
    "chunk": 64,
}
# Embedding, layers with their norms, the last norm.
PARAMETERS = 1024 * 256 + 2 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256

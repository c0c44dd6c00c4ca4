"""Models that come with the package, by name."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "shipped"
# Pretrained on generated text: docs/base_model.md.
BASE_MODEL = "agentrl/base-4m"
SHIPPED_MODELS = {BASE_MODEL: FOLDER / "base-4m"}


def shipped_or_same(folder: str | Path) -> str | Path:
    """The folder of a model that comes with the package; any other name or path as it is."""
    return SHIPPED_MODELS.get(str(folder), folder)

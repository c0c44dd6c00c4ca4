"""`image_update`: a GRPO step on episodes with images, of a frozen tower whose outputs are computed
once an image, or which runs in each microbatch.

Generates the table of docs/vision.md.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.images.features import FEATURE_BYTES
from agentrl_jax.images.loading import image_part
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.image_prefill import (
    SMALL,
    SMALL_VOCAB,
    fixed_size_processor,
)
from agentrl_jax.launch.benchmarks.rivals import round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.learner.image_rows import ImageRows
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool

FROZEN = {"tower": ("tower",), "tower and projector": ("tower", "projector")}
HEADING = "| frozen | s, patches | s, states of images | times as fast |\n|---|---|---|---|"


@dataclasses.dataclass
class ImageUpdate:
    """New images in each step; a group's completions follow the same prompt."""

    groups: int = option(2, "Groups of a step.", 1)
    group: int = option(8, "Completions of a group.", 2)
    images: int = option(2, "Images of a prompt.", 1)
    pixels: int = option(224, "A side of each image.", 1)
    text: int = option(32, "Tokens of text before the images, and of a completion.", 1)
    microbatch: int = option(4, "Rows of a microbatch.", 1)
    repeats: int = option(3, "Timed steps, after one more to warm up.", 1)
    page: str = option(
        "", "The page whose table `image-update` is replaced, docs/vision.md; empty: none."
    )

    def prepare(self) -> None:
        """Uses one device."""

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report."""
        seconds, compiled = dict[str, list[float]](), 0
        for name, frozen in FROZEN.items():
            sides = [_Steps(self, frozen, feature_bytes) for feature_bytes in (0, FEATURE_BYTES)]
            times: list[list[float]] = [[], []]
            for step in range(1 + self.repeats):  # the two sides alternate
                before = compile_count()
                for side, of_side in zip(sides, times):
                    of_side.append(side.seconds(step))
                compiled += (compile_count() - before) * (step > 0)
            for side in sides:
                side.runtime.close()
            seconds[name] = [round_significant(float(np.median(x[1:]))) for x in times]
        lines = [
            f"| {name} | {patches:.2f} | {states:.2f} | {patches / states:.2f} |"
            for name, (patches, states) in seconds.items()
        ]
        table = "\n".join([HEADING, *lines])
        if self.page:
            doc_tables.replace_section(Path(self.page), "image-update", table)
        print(table)
        return {
            "bench": "image_update",
            "sizes": dataclasses.asdict(self),
            "seconds": seconds,
            "compilations": compiled,
            **run_environment(),
        }


class _Steps:
    """An algorithm whose steps are timed."""

    def __init__(self, sizes: ImageUpdate, frozen: tuple[str, ...], feature_bytes: int) -> None:
        self._sizes = s = sizes
        policy = dataclasses.replace(SMALL, frozen=frozen).build(SMALL_VOCAB)
        self._side, processor = fixed_size_processor(policy.image_format, s.pixels)
        grid = processor.grid(self._side, self._side)
        self._image_tokens = processor.num_tokens(grid)
        patches = s.images * grid[1] * grid[2]
        method = grpo(
            optimizer=AdamWConfig(1e-5),
            bin_length=2 * s.text + s.images * self._image_tokens,
            microbatch=s.microbatch,
            images=ImageRows(processor, patches, feature_bytes=feature_bytes),
        )
        mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
        self._algorithm = method.build(policy, mesh, 10**6)
        params = policy.init(jax.random.key(0))
        self._state = self._algorithm.init(jax.random.key(1), params)
        self.runtime = Runtime({}, {}, InlinePool())

    def seconds(self, step: int) -> float:
        """The time of a step on new groups, the same for equal steps."""
        groups = self._make_groups(np.random.default_rng(step))
        began = time.perf_counter()
        self._state, _ = self._algorithm.step(self._state, groups, self.runtime)
        jax.block_until_ready(self._state.params)
        return time.perf_counter() - began

    def _make_groups(self, rng: np.random.Generator) -> list[Group]:
        s, groups = self._sizes, []
        tokens, shape = self._image_tokens, (self._side, self._side, 3)
        spans = tuple((s.text + i * tokens, s.text + (i + 1) * tokens) for i in range(s.images))
        for i in range(s.groups):
            images = tuple(image_part(rng.integers(0, 256, shape, np.uint8)) for _ in spans)
            prompt = np.zeros(s.text + s.images * tokens, np.int32)
            prompt[: s.text] = rng.integers(0, SMALL_VOCAB, s.text)
            members = []
            for reward in rng.permutation(s.group):
                call = Call(
                    prompt,
                    rng.integers(0, SMALL_VOCAB, s.text, np.int32),
                    np.full(s.text, -np.log(SMALL_VOCAB), np.float32),
                    np.zeros(s.text, np.int32),
                    Sampling(budget=s.text),
                    "stop",
                    image_spans=spans,
                    images=images,
                )
                turn = Turn((call,), assistant(""), (), float(reward), terminated=True)
                members.append(Trajectory((user(""),), (turn,)))
            groups.append(Group(str(i), tuple(members)))
        return groups

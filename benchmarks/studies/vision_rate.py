"""Images per second of a small vision tower, and its time against the number of images.

python benchmarks/studies/vision_rate.py [--preset=qwen3_vl_2b]

A table of the time to encode 4 to 32 images of 256 x 256 pixels in a single row of patches, on
this machine's device, and a straight line through it: cost is linear where the largest deviation
from the line is small.
"""

import time

import jax
import numpy as np
from absl import app, flags

from agentrl_jax.image_format import ImagePatches
from agentrl_jax.launch.plans.model_shapes import load_preset
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.cost import square_side
from agentrl_jax.models.vision.policy import VisionLanguageConfig, VisionLanguageModel

flags.DEFINE_string("preset", "", "A published shape; empty: a tower of 0.3 million parameters.")
flags.DEFINE_integer("pixels", 256, "A side of each image.", lower_bound=1)
COUNTS, REPEATS = (4, 8, 16, 32), 3


def seconds_by_count(policy: VisionLanguageModel, pixels: int) -> dict[int, float]:
    """The median time to encode so many images in a row."""
    form, params = policy.image_format, policy.init(jax.random.key(0))
    side = square_side(form, pixels)
    shape = side * side, form.patch_numbers
    rng = np.random.default_rng(0)
    image = ImagePatches(rng.normal(size=shape).astype(np.float32), (1, side, side))
    encode, times = jax.jit(policy.encode_images), {}
    for count in COUNTS:
        packed = jax.device_put(form.pack([[image] * count], count * side**2, side**2))
        jax.block_until_ready(encode(params, packed))
        runs = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            jax.block_until_ready(encode(params, packed))
            runs.append(time.perf_counter() - start)
        times[count] = float(np.median(runs))
    return times


def main(argv: list[str]) -> None:
    del argv
    f = flags.FLAGS
    config, vocab_size = (
        load_preset(f.preset) if f.preset else (VisionLanguageConfig(vision=VisionConfig()), 64)
    )
    policy = config.build(vocab_size)
    if not isinstance(policy, VisionLanguageModel):
        raise app.UsageError(f"the preset {f.preset} has no vision tower")
    times = seconds_by_count(policy, f.pixels)
    print("| images | seconds | images/s |\n|---|---|---|")
    for count, seconds in times.items():
        print(f"| {count} | {seconds:.4f} | {count / seconds:.1f} |")
    x, y = np.array(list(times)), np.array(list(times.values()))
    slope, start = np.polyfit(x, y, 1)
    deviation = np.abs(y - slope * x - start).max() / y.max()
    print(f"\n{1000 * slope:.2f} ms per image; largest deviation from a line {deviation:.1%}")


if __name__ == "__main__":
    app.run(main)

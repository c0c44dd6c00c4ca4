"""Shared by the experiments of policies that see (docs/vision_systems.md): a small pretrained model
with a tower (`vision_base.py`), a short fine-tuning on demonstrations of the task, then a method.

Images have `SIDE` pixels a side and 16 tokens. All 0.6 million weights are trained.
"""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.images.processor import ImageProcessor, PixelBudget
from agentrl_jax.images.prompts import qwen3_vl_chat_images
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.image_rows import ImageRows
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import VISION_BASE_MODEL
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Source,
)
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

SIDE = 56  # pixels, of the longer side of an image
PATCH, MERGE = 7, 2  # pixels of a patch, patches of a token; both a side
IMAGE_PATCHES = (SIDE // PATCH) ** 2  # of an image, at most
# An image keeps its aspect ratio.
PROCESSOR = ImageProcessor(PixelBudget((PATCH * MERGE) ** 2, SIDE**2), PATCH, MERGE, 2)


@dataclass(frozen=True)
class VisionTask:
    """An environment of images, and the sizes of its episodes.

    Args:
        environment: its name without agentrl/.
        options: of the environment.
        player: the scripted policy that demonstrates.
        length: most tokens of an episode.
        images: most images of an episode.
        budget: most tokens of an action.
        image_patches: most patches of an image.
        demonstrations: episodes.
        sft_steps, steps: of fine-tuning, and of the method.
        videos: whether messages hold videos, whose frames are scaled as images.
        base: the pretrained model.
    """

    environment: str
    options: Mapping[str, Any]
    player: str
    length: int
    images: int
    budget: int
    image_patches: int = IMAGE_PATCHES
    demonstrations: int = 3000
    sft_steps: int = 150
    steps: int = 30
    videos: bool = False
    base: str = VISION_BASE_MODEL

    @property
    def processor(self) -> ImageProcessor:
        """That of images, and of videos where there are any."""
        return dataclasses.replace(PROCESSOR, videos=PROCESSOR if self.videos else None)

    def spec(self, **options: Any) -> EnvironmentSpec:
        """The environment with further options."""
        name = f"agentrl_jax.envs:agentrl/{self.environment}"
        return EnvironmentSpec(name, {"instruction": False, **self.options, **options})

    @property
    def image_rows(self) -> ImageRows:
        return ImageRows(self.processor, self.images * self.image_patches)

    @property
    def engine(self) -> EngineConfig:
        return EngineConfig(
            rows=64,
            positions=self.length,
            prefill_chunk=32,
            min_decode_steps=8,
            batching_delay=0.1,
            image_patches=(self.image_patches,),
        )

    def cloning(self) -> BehaviorCloningConfig:
        """The algorithm of a fine-tuning."""
        return BehaviorCloningConfig(
            optimizer=AdamWConfig(1e-3, warmup_steps=10, final_fraction=0.1),
            bin_length=self.length,
            microbatch=16,
            images=self.image_rows,
        )

    def settings(self, **settings: Any) -> dict[str, Any]:
        """The optimizer and batch shapes of a method, with further settings."""
        shapes = {
            "optimizer": AdamWConfig(3e-4, warmup_steps=3),
            "minibatches": 2,
            "microbatch": 16,
            "bin_length": self.length,
            "images": self.image_rows,
        }
        return {**shapes, **settings}


def vision_experiment(
    name: str,
    task: VisionTask,
    algorithm: AlgorithmConfig,
    source: Source,
    smoke: bool,
    options: Mapping[str, Any] | None = None,
    demonstrated: Mapping[str, TaskSource] | None = None,
) -> Experiment:
    """Fine-tuning on demonstrations, then the method.

    Args:
        name: of the run.
        task: what is trained on.
        algorithm, source: of the method's phase.
        smoke: two short steps of each phase.
        options: of the environment, beside the task's.
        demonstrated: whose tasks are demonstrated, in equal numbers; None: the environment's.
    """
    environment = task.spec(**(options or {}))
    images = qwen3_vl_chat_images(task.processor)
    sft_steps, steps = (2, 2) if smoke else (task.sft_steps, task.steps)
    return Experiment(
        name=name,
        environment=EnvironmentConfig(environment.name, environment.options, workers=0),
        agent=AgentConfig(ChatFormat(images=images), budget=task.budget),
        tokenizer=FolderTokenizer(task.base),
        policy=PretrainedDecoder(task.base),
        demonstrations=DemonstrationConfig(
            task.player,
            episodes=32 if smoke else task.demonstrations,
            task_source=Mixture(demonstrated) if demonstrated else None,
        ),
        phases={
            "sft": Phase("SFT", Demonstrations(8 if smoke else 16), task.cloning(), sft_steps),
            "rl": Phase("RL", copy.deepcopy(source), copy.deepcopy(algorithm), steps),
        },
        evaluation=EvaluationConfig(
            episodes=8 if smoke else 128,
            players=("random", task.player, "expert"),
        ),
        engine=task.engine,
    )

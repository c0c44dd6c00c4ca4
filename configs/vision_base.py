"""A small model that sees, pretrained on captions of generated images and questions about them.

Next-token prediction of scripted experts' episodes: captions of scenes and of their parts, which
name each object with its place (`SceneCaptions`); then mostly the place of one object, which ties a
name in a question to an image; then questions about scenes with the looks that answer them, whose
thoughts are lines of captions. The tokenizer is that of `agentrl/see-600k`, byte pairs of the
experts' texts in all systems. The result is exported with `agentrl_jax.launch.export` and ships as
`agentrl/see-600k` (docs/vision_systems.md).

Hardware: one CPU core, 65 minutes; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_base.py --run_dir=runs/vision_base
"""

import dataclasses
from collections.abc import Mapping

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.episode_examples import EpisodeExamples
from agentrl_jax.configs import vision_codevision, vision_mgpo, vision_vigorl
from agentrl_jax.configs.small import pick
from agentrl_jax.configs.vision_task import PATCH, SIDE, VisionTask
from agentrl_jax.images.prompts import qwen3_vl_chat_images
from agentrl_jax.learner.learning_rate import StableThenLinear
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import VISION_BASE_MODEL
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.training.config import (
    AgentConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec

CAPTIONS = VisionTask(
    "SceneCaptions-v0",
    {"size": 240, "view": SIDE, "objects": 6, "part": 56},
    "expert",
    length=256,
    images=2,
    budget=224,
)
SHAPE = VisionLanguageConfig(
    layers=3,
    width=96,
    hidden=192,
    heads=6,
    kv_heads=3,
    head_size=16,
    qk_norm=True,
    rope=Rope(sections=(4, 2, 2), interleaved=True),
    vision=VisionConfig(
        layers=2,
        width=64,
        hidden=128,
        patch_size=PATCH,
        position_side=SIDE // PATCH,
        deepstack_layers=(0,),
    ),
)
SCENE, PART, WHERE = (CAPTIONS.spec(kinds=(kind,)) for kind in ("scene", "part", "where"))
TASKS = {
    "scene": SCENE,
    "part": PART,
    "where": WHERE,
    "region": vision_mgpo.TASK.spec(),
    "points": vision_vigorl.TASK.spec(**vision_vigorl.POINTS),
    "zoom": vision_vigorl.TASK.spec(**vision_vigorl.ZOOM),
    "transformed": vision_codevision.TASK.spec(),
}
QUESTION_SHARES = {  # of the last phase
    "scene": 1,
    "part": 2,
    "where": 2,
    "region": 4,
    "points": 2,
    "zoom": 4,
    "transformed": 4,
}
QUESTION_LENGTH = 512  # most tokens of a question with its answer


def cloning(rate: AdamWConfig, rows: int, task: VisionTask = CAPTIONS) -> BehaviorCloningConfig:
    """Next-token prediction of episodes of a task's sizes."""
    return dataclasses.replace(task.cloning(), optimizer=rate, microbatch=rows)


def examples(tasks: int, of: Mixture) -> EpisodeExamples:
    """New episodes of the scripted experts in every step."""
    return EpisodeExamples(rollouts=Rollouts(tasks, ScriptedEpisodes("expert"), of))


def get_config(variant: str = "full") -> Experiment:
    steps = pick(variant, "vision_base", full=(4000, 1500, 2000), smoke=(2, 2, 2))
    smoke = variant == "smoke"
    # Constant, then linear: a longer run is the same up to its decay.
    rate = AdamWConfig(2e-3, 50, 0.1, decay=StableThenLinear(0.3))
    decayed = AdamWConfig(1e-3, 20, 0.1)
    seen = Mixture({"scene": SCENE, "part": PART})
    referred = Mixture(
        {"scene": SCENE, "part": PART, "where": WHERE}, {"scene": 1, "part": 1, "where": 6}
    )
    questions = Mixture(TASKS, QUESTION_SHARES)
    longer = dataclasses.replace(CAPTIONS, length=QUESTION_LENGTH, images=5)
    answering = cloning(rate, 6, longer)
    images = qwen3_vl_chat_images(dataclasses.replace(CAPTIONS, videos=True).processor)
    return Experiment(
        name="vision-base",
        environment=EnvironmentConfig(SCENE.name, SCENE.options, workers=0),
        agent=AgentConfig(ChatFormat(images=images), budget=CAPTIONS.budget),
        tokenizer=FolderTokenizer(VISION_BASE_MODEL),
        policy=SHAPE,
        demonstrations=None,
        phases={
            "captions": Phase("captions", examples(16, seen), cloning(rate, 16), steps[0], 250),
            "places": Phase("places", examples(32, referred), cloning(decayed, 8), steps[1]),
            "questions": Phase("questions", examples(24, questions), answering, steps[2]),
        },
        evaluation=EvaluationConfig(
            episodes=8 if smoke else 128,
            players=("random",),
            environments={"scene": SCENE} if smoke else TASKS,
        ),
        engine=dataclasses.replace(CAPTIONS.engine, positions=QUESTION_LENGTH),
    )


def further_trained(
    name: str,
    tasks: Mapping[str, EnvironmentSpec],
    shares: Mapping[str, float],
    length: int,
    images: int,
    steps: int,
    smoke: bool,
    base: str = VISION_BASE_MODEL,
) -> Experiment:
    """A model that sees, trained on the experts' episodes of further tasks.

    Args:
        name: of the run, after "vision-"; its phase is `name`ing.
        tasks: that are trained on and evaluated.
        shares: how often each is drawn; 1 where it has none.
        length: most tokens of an episode.
        images: most images of an episode.
        steps: of the phase.
        smoke: two steps.
        base: the model, by default the one that this config makes.
    """
    config = get_config("smoke" if smoke else "full")
    mixture = Mixture(dict(tasks), {task: shares.get(task, 1) for task in tasks})
    rate = AdamWConfig(1e-3, 20, 0.05, decay=StableThenLinear(0.4))
    algorithm = cloning(rate, 6, dataclasses.replace(CAPTIONS, length=length, images=images))
    config.name, label = f"vision-{name}", f"{name}ing"
    config.policy = PretrainedDecoder(base)
    steps = 2 if smoke else steps
    config.phases = {label: Phase(label, examples(24, mixture), algorithm, steps, 250)}
    config.evaluation = dataclasses.replace(
        config.evaluation, environments={"where": WHERE} if smoke else dict(tasks)
    )
    config.engine = dataclasses.replace(config.engine, positions=length)
    return config

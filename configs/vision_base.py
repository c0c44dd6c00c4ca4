"""A small model that sees, pretrained on captions of generated images and questions about them.

Next-token prediction of scripted experts' answers (`SceneCaptions`): captions of scenes and of
their parts, which name each object with its place; then mostly the place of one object, which ties
a name in a question to an image. Of the demonstrations of all systems only the texts are read, by
the tokenizer. The result is exported with `agentrl_jax.launch.export` and ships as
`agentrl/see-600k` (docs/vision_systems.md).

Hardware: one CPU core, 36 minutes; right lines of captions .93 (scenes) and .77 (parts), places .74

    agentrl-train --config=configs/vision_base.py --run_dir=runs/vision_base
"""

import dataclasses

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.episode_examples import EpisodeExamples, opening_and_answer
from agentrl_jax.configs import (
    vision_codevision,
    vision_framethinker,
    vision_metaspatial,
    vision_mgpo,
    vision_vigorl,
    vision_vrag,
)
from agentrl_jax.configs.small import pick
from agentrl_jax.configs.vision_task import PATCH, SIDE, VisionTask
from agentrl_jax.images.prompts import qwen3_vl_chat_images
from agentrl_jax.learner.learning_rate import StableThenLinear
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig
from agentrl_jax.models.vision.tokenizer import VisionBPETokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts

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
# Whose texts, in equal numbers, make the tokenizer.
TASKS = {
    "scene": SCENE,
    "part": PART,
    "region": vision_mgpo.TASK.spec(),
    "points": vision_vigorl.TASK.spec(**vision_vigorl.POINTS),
    "zoom": vision_vigorl.TASK.spec(**vision_vigorl.ZOOM),
    "transformed": vision_codevision.TASK.spec(),
    "uniform_frames": vision_framethinker.TASK.spec(**vision_framethinker.UNIFORM),
    "chosen_frames": vision_framethinker.TASK.spec(**vision_framethinker.CHOSEN),
    "pages": vision_vrag.TASK.spec(),
    "rooms": vision_metaspatial.TASK.spec(turns=1),
}


def cloning(rate: AdamWConfig, rows: int) -> BehaviorCloningConfig:
    return dataclasses.replace(CAPTIONS.cloning(), optimizer=rate, microbatch=rows)


def examples(tasks: int, of: Mixture) -> EpisodeExamples:
    """New ones of the scripted experts in every step."""
    return EpisodeExamples(opening_and_answer, Rollouts(tasks, ScriptedEpisodes("expert"), of))


def get_config(variant: str = "full") -> Experiment:
    episodes, steps, smoke = pick(
        variant,
        "vision_base",
        full=(10_000, (4000, 1500), False),
        smoke=(80, (2, 2), True),
    )
    # Constant, then linear: a longer run is the same up to its decay.
    rate = AdamWConfig(2e-3, 50, 0.1, decay=StableThenLinear(0.3))
    decayed = AdamWConfig(1e-3, 20, 0.1)
    seen = Mixture({"scene": SCENE, "part": PART})
    referred = Mixture(
        {"scene": SCENE, "part": PART, "where": WHERE}, {"scene": 1, "part": 1, "where": 6}
    )
    images = qwen3_vl_chat_images(dataclasses.replace(CAPTIONS, videos=True).processor)
    return Experiment(
        name="vision-base",
        environment=EnvironmentConfig(SCENE.name, SCENE.options, workers=0),
        agent=AgentConfig(ChatFormat(images=images), budget=CAPTIONS.budget),
        tokenizer=VisionBPETokenizer(videos=True),
        policy=SHAPE,
        demonstrations=DemonstrationConfig("expert", episodes, task_source=Mixture(TASKS)),
        phases={
            "captions": Phase("captions", examples(16, seen), cloning(rate, 16), steps[0], 250),
            "places": Phase("places", examples(32, referred), cloning(decayed, 8), steps[1]),
        },
        evaluation=EvaluationConfig(
            episodes=8 if smoke else 128,
            players=("random",),
            environments={"scene": SCENE, "part": PART, "where": WHERE},
        ),
        engine=CAPTIONS.engine,
    )

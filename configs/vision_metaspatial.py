"""MetaSpatial (arXiv 2503.18470): layouts of rooms, refined by drawings, with 3D-SPO, against GRPO
and against one turn.

Each turn gives the positions of all furniture as JSON and is judged by format, collisions, wishes
and three measurable terms of looks, where the system has marks of a language model on renderings.
`:grpo` gives the coordinates of things that collide no return of their own, `:one_turn` trains GRPO
without refinement, `:smoke` takes two steps of each phase. All begin with the same fine-tuning,
half of it of one turn.

Hardware: one CPU core, 10 minutes; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_metaspatial.py[:grpo]
"""

from functools import partial

from agentrl_jax.algorithms.methods import meta_spatial
from agentrl_jax.algorithms.strategies.span_factors import SpanFactors
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.configs.vision_task import VisionTask, vision_experiment
from agentrl_jax.models.hf.shipped import ROOM_BASE_MODEL
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts

TASK = VisionTask(
    "RoomLayouts-v0",
    {"kinds": ("free", "sides"), "view": 56},
    player="mixture",
    length=640,
    images=2,
    budget=224,
    base=ROOM_BASE_MODEL,
)


@partial(with_pair, base="grpo", method="spo")
def get_config(variant: str = "spo") -> Experiment:
    physics, turns = pick(
        variant,
        "vision_metaspatial",
        spo=(True, 2),
        grpo=(False, 2),
        one_turn=(False, 1),
        smoke=(True, 2),
    )
    smoke = variant == "smoke"
    strategy = IndependentEpisodes(4)
    return vision_experiment(
        f"vision-metaspatial-{variant}",
        TASK,
        meta_spatial(physics, **TASK.settings()),
        Rollouts(tasks=2 if smoke else 8, strategy=SpanFactors(strategy) if physics else strategy),
        smoke,
        options={"turns": turns},
        demonstrated={"refined": TASK.spec(turns=2), "one": TASK.spec(turns=1)},
    )

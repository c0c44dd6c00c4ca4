"""VRAG-RL (arXiv 2505.22019): search pages, look at a part of one, answer; its ablation of the
reward and of the actions.

In which region is a company's number the largest? The library has 60 charts, whose bars can be
compared at the size that is shown; numbers of tables and documents could not be read.
`:no_retrieval` trains without NDCG of the pages, `:search_only` without crops, `:plain` without
both; each of these two pairs of actions has its own fine-tuning. `:smoke` takes two steps of each
phase.

Hardware: 1 CPU core; time: 8 minutes of `:pair`; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_vrag.py[:plain]
"""

from functools import partial

from agentrl_jax.algorithms.methods import vrag_rl
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.configs.vision_task import VisionTask, vision_experiment
from agentrl_jax.models.hf.shipped import VIDEO_BASE_MODEL
from agentrl_jax.training.config import Experiment

TASK = VisionTask(
    "PageQuestions-v0",
    {"kinds": ("most",), "view": 56, "pages": 60, "forms": ("chart",), "horizon": 4},
    player="weak",
    length=480,
    images=3,
    budget=104,
    base=VIDEO_BASE_MODEL,
)


@partial(with_pair, base="no_retrieval", method="vrag")
def get_config(variant: str = "vrag") -> Experiment:
    retrieval, crops = pick(
        variant,
        "vision_vrag",
        vrag=(True, True),
        no_retrieval=(False, True),
        search_only=(True, False),
        plain=(False, False),
        smoke=(True, True),
    )
    smoke = variant == "smoke"
    return vision_experiment(
        f"vision-vrag-{variant}",
        TASK,
        vrag_rl(retrieval, **TASK.settings()),
        rollouts(tasks=2, group_size=4) if smoke else rollouts(tasks=8),
        smoke,
        options={"crops": crops},
    )

"""R1-Code-Interpreter (arXiv 2505.21668): tasks in stages by potential 4 p (1 - p), or uniformly.

A task is a generator of problems, as in the paper. Four of sixteen were demonstrated; the others
are nearly impossible for the policy. The first sweep over them measures each one's success rate p;
then four stages draw from those of the highest potential, and from more and more others.
A step has two groups of eight, so that many steps of uniform draws have nothing to learn from.
`:uniform` draws from all at once, `:pair` trains both from one fine-tuning, `:smoke` takes two
steps of each phase. The evaluation has held-out texts of the four, and held-out generators.

Hardware: 2 CPU cores; time: `:pair` 8 minutes on one of them

    agentrl-train --config=configs/code_r1ci.py[:uniform|pair]
"""

from functools import partial

from agentrl_jax.algorithms.experience.potential_stages import PotentialStages
from agentrl_jax.algorithms.methods import r1_code_interpreter
from agentrl_jax.configs.code_task import EASY, TRAINING_SETTINGS, code_experiment, code_spec
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.mixture import Mixture

IMPOSSIBLE = (
    "backwards",
    "shifted_letters",
    "sorted_letters",
    "without_letter",
    "run_lengths",
    "common_letters",
    "arrangements",
    "letter_count",
    "power_remainder",
    "next_primes",
    "mean",
    "base_digits",
)
R1CI = {"protocol": "r1ci", "generators": EASY + IMPOSSIBLE}
UNSEEN = ("modular_inverse", "numbers_with_digit_sum")


@partial(with_pair, base="uniform", method="stages")
def get_config(variant: str = "stages") -> Experiment:
    stages = PotentialStages(stages=4, draws_per_stage=8)
    sampler = pick(variant, "code_r1ci", stages=stages, uniform=None, smoke=stages)
    smoke = variant == "smoke"
    members = {g: code_spec(**R1CI | {"generators": g}) for g in EASY + IMPOSSIBLE}
    tasks = Mixture(members, sampler=sampler)
    return code_experiment(
        f"code-r1ci-{variant}",
        r1_code_interpreter(**TRAINING_SETTINGS),
        rollouts(2, 4 if smoke else 8, task_source=tasks),
        R1CI,
        smoke,
        steps=40,
        demonstrated={"numbers": code_spec(protocol="r1ci")},
        evaluation_episodes=128,
        evaluated={
            "test": code_spec(**R1CI | {"split": "test", "generators": EASY}),
            "unseen": code_spec(**R1CI | {"split": "held_out", "generators": UNSEEN}),
        },
    )

"""Search Self-play (arXiv 2510.18821): a model asks itself questions, no questions are given.

A proposer is given an answer, searches, and asks; a question must be valid and a frozen reader must
answer it from the proposer's pages among 4 others. The solver's reward is exact match, the
proposer's the solvers' failure rate; `:intermediate` 4 p (1 - p). `:unchecked` has no reader,
`:no_pool` plays nothing in place of an invalid question, `:given` trains the solver alone on
generated questions. Published: 7 billion weights, 256 questions a step, groups of 5.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_selfplay.py[:intermediate|unchecked|no_pool|given|pair]
"""

from functools import partial

from agentrl_jax.algorithms.methods import search_self_play
from agentrl_jax.algorithms.strategies.proposer_solver import (
    AnswerableCheck,
    ProposerSolver,
    intermediate_difficulty,
)
from agentrl_jax.configs.search_task import (
    TRAINING_SETTINGS,
    frozen_reader,
    proposal_spec,
    reader_phase,
    search_experiment,
    search_spec,
)
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.envs.search.answers import exact_match
from agentrl_jax.envs.search.reader import documents_of, reading_prompt
from agentrl_jax.models.hf.shipped import READING_MODEL
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts

MAX_LENGTH = 1024  # tokens: four pages of a proposer and four others


@partial(with_pair, base="unchecked")
def get_config(variant: str = "method") -> Experiment:
    check = AnswerableCheck(reading_prompt, documents_of, exact_match)
    solver = search_spec()
    strategy = pick(
        variant,
        "search_selfplay",
        method=ProposerSolver(solver, check),
        intermediate=ProposerSolver(solver, check, reward=intermediate_difficulty),
        unchecked=ProposerSolver(solver),
        no_pool=ProposerSolver(solver, check, refill=False),
        given=None,
        smoke=ProposerSolver(solver, check, group_size=3),
    )
    smoke = variant == "smoke"
    tasks = 2 if smoke else 8
    source = Rollouts(tasks, strategy, proposal_spec()) if strategy else rollouts(tasks, 5)
    config = search_experiment(
        f"search-selfplay-{variant}",
        search_self_play(**TRAINING_SETTINGS),
        source,
        smoke,
        max_length=MAX_LENGTH,
        model=READING_MODEL,
    )
    assert config.demonstrations is not None
    roles = Mixture({"solver": search_spec(), "proposer": proposal_spec()})
    config.demonstrations.task_source = roles
    config.phases = {"reader": reader_phase(solver, smoke, 4, MAX_LENGTH), **config.phases}
    config.models = {"reader": frozen_reader()}
    return config

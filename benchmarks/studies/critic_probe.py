"""Does an utterance critic value repeated questions less? Probes the critic of an ArCHer run.

    python benchmarks/studies/critic_probe.py runs/archer-subset-archer

The run is of a game of questions. In states of its own evaluation, repeating a question that was
answered "No." only loses a turn. Prints one line of JSON: the fraction of pairs in which the critic
ranks such a question below a random new one, and the mean advantages of both, of the policy's
utterances and of those that won a game. A critic that does not distinguish them has a fraction of
.5.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.archer.algorithm import Archer, ArcherConfig
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition, transitions_of
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.storage import config_json
from agentrl_jax.training.run import Run


def restore_algorithm(run: Run) -> tuple[Archer, TrainState]:
    """The algorithm and its state from the last checkpoint."""
    phase = run.experiment.phases["rl"]
    assert phase is not None and isinstance(phase.algorithm, ArcherConfig), (
        "the run's method is not ArCHer"
    )
    algorithm = phase.algorithm.build(run.policy, run.mesh, phase.steps)
    state, _ = PhaseCheckpointer(run.run_dir / "checkpoints" / "rl").restore(
        algorithm.init(jax.random.key(0), run.params)
    )
    return algorithm, state


def answered_questions(state: TokenizedText) -> dict[str, str]:
    """Questions and their answers so far."""
    lines = state.text.splitlines()[1:]
    return dict(zip(lines[::2], lines[1::2]))


def sample_pairs(
    turns: Sequence[Transition], rng: np.random.Generator
) -> tuple[list[TokenizedText], list[TokenizedText], list[TokenizedText]]:
    """States with, for each, a question that was answered "No." and a new one."""
    known = sorted({turn.utterance.text for turn in turns if turn.utterance.text.endswith("?")})
    probes: list[tuple[TokenizedText, TokenizedText, TokenizedText]] = []
    for turn in turns:
        answers = answered_questions(turn.state)
        old = [question for question, answer in answers.items() if answer == "No."]
        new = [question for question in known if question not in answers]
        if old and new:
            repeated, unasked = (
                TokenizedText(turn.utterance.ids, questions[rng.integers(len(questions))])
                for questions in (old, new)
            )
            probes.append((turn.state, repeated, unasked))
    states, olds, news = zip(*probes)
    return list(states), list(olds), list(news)


def main(run_dir: Path) -> None:
    with Run(config_json.load_config(run_dir), run_dir, quiet=True) as run:
        algorithm, state = restore_algorithm(run)
        trajectories = run.evaluations.all_trajectories(run.experiment.phases["rl"].label)
        turns = [turn for t in trajectories for turn in transitions_of(t, run.agent, 1.0)]
        states, old, new = sample_pairs(turns, np.random.default_rng(0))
        won = [turn for turn in turns if turn.terminated and turn.reward == 0]

        def advantage(
            states: Sequence[TokenizedText], utterances: Sequence[TokenizedText]
        ) -> np.ndarray:
            return algorithm.critic_trainer.advantage(
                state.extra.values, states, utterances, ProcessGroup()
            )

        of_old, of_new = advantage(states, old), advantage(states, new)
        utterance = advantage([turn.state for turn in turns], [turn.utterance for turn in turns])
        ended = advantage([turn.state for turn in won], [turn.utterance for turn in won])
    means = {"asked": of_old, "new": of_new, "said": utterance, "ended_well": ended}
    print(
        json.dumps(
            {"pairs": len(states), "asked_below_new": round(float(np.mean(of_old < of_new)), 3)}
            | {name: round(float(np.mean(x)), 3) for name, x in means.items() if len(x)}
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

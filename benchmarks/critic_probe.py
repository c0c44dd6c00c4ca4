"""Does a critic of utterances know what was asked already? Asks the trained critic of a run of ArCHer on a game of questions.

    python benchmarks/critic_probe.py runs/archer-subset-archer

In states of the run's own evaluation, a question that was answered "No." before is worth a turn less than nothing. Prints one line of
JSON: in how many of such pairs the critic ranks it below a random question that was not asked yet, and mean advantages of both, of what
the policy said, and of what ended a game well. A critic that cannot tell has a share of .5.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

import agentrl_jax.envs  # noqa: F401
from agentrl_jax import configfile
from agentrl_jax.algorithms.archer import Archer, ArcherConfig
from agentrl_jax.algorithms.turn_replay import Said, Transition, transitions_of
from agentrl_jax.checkpoint import Keeper
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import TrainState
from agentrl_jax.run import Run


def restored(run: Run) -> tuple[Archer, TrainState]:
    """The algorithm as its last checkpoint has it."""
    phase = run.experiment.rl
    assert phase is not None and isinstance(phase.algorithm, ArcherConfig), "the run's method is not ArCHer"
    algorithm = phase.algorithm.build(run.policy, run.mesh, phase.steps)
    state, _ = Keeper(run.run_dir / "checkpoints" / "rl").restore(algorithm.init(jax.random.key(0), run.params))
    return algorithm, state


def asked(state: Said) -> dict[str, str]:
    """Questions and their answers so far."""
    lines = state.text.splitlines()[1:]
    return dict(zip(lines[::2], lines[1::2]))


def probes(turns: Sequence[Transition], rng: np.random.Generator) -> tuple[list[Said], list[Said], list[Said]]:
    """States, a question of each that was answered "No.", and one that was not asked."""
    known = sorted({turn.utterance.text for turn in turns if turn.utterance.text.endswith("?")})
    found: list[tuple[Said, Said, Said]] = []
    for turn in turns:
        answers = asked(turn.state)
        old = [question for question, answer in answers.items() if answer == "No."]
        new = [question for question in known if question not in answers]
        if old and new:
            found.append((turn.state, *(Said(turn.utterance.ids, some[rng.integers(len(some))]) for some in (old, new))))
    states, olds, news = zip(*found)
    return list(states), list(olds), list(news)


def main(run_dir: Path) -> None:
    with Run(configfile.load(run_dir), run_dir, quiet=True) as run:
        algorithm, state = restored(run)
        assert run.experiment.rl
        played = run.evaluated(run.experiment.rl.label)
        turns = [turn for t in played for turn in transitions_of(t, run.agent, 1.0)]
        states, old, new = probes(turns, np.random.default_rng(0))
        won = [turn for turn in turns if turn.terminated and turn.reward == 0]

        def advantage(states: Sequence[Said], utterances: Sequence[Said]) -> np.ndarray:
            return algorithm.values.advantage(state.extra.values, states, utterances, Hosts())

        of_old, of_new = advantage(states, old), advantage(states, new)
        said = advantage([turn.state for turn in turns], [turn.utterance for turn in turns])
        ended = advantage([turn.state for turn in won], [turn.utterance for turn in won])
    means = {"asked": of_old, "new": of_new, "said": said, "ended_well": ended}
    print(json.dumps({"pairs": len(states), "asked_below_new": round(float(np.mean(of_old < of_new)), 3)}
                     | {name: round(float(np.mean(x)), 3) for name, x in means.items() if len(x)}))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))

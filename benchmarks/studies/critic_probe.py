"""Does an utterance critic value repeated questions less? Probes the critic of an ArCHer run.

    python benchmarks/studies/critic_probe.py runs/archer-subset-archer [--rerolls=8]

The run is of a game of questions. In states of its own evaluation, repeating a question that was
answered "No." only loses a turn. `--samples` utterances are drawn from the policy in each state, so
that both kinds of questions come from its own distribution. Prints one line of JSON: the number of
states in which it drew both kinds, the fraction of pairs in which the critic ranks the repeated
question below the new one (.5: it does not distinguish them), and the mean advantages of both, of
all drawn utterances, and of those that won a game.

With `--rerolls`, so many games go on from each of the policy's utterances in the first `--states`
states (of Twenty Questions, with an object that the answers leave open). `correlation` is that of
the critic's advantage with the true one, both less their means over the state's utterances; `rho`
that of one return (`launch.benchmarks.archer.rho`): a critic is worth following where its
correlation is above it.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.archer.algorithm import Archer, ArcherConfig
from agentrl_jax.algorithms.archer.replay_buffer import (
    TokenizedText,
    Transition,
    decode_ids,
    transitions_of,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.launch.benchmarks.archer.rho import (
    PossibleTargets,
    Rerolls,
    mean_variance,
    nested_variance,
)
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.storage import config_json
from agentrl_jax.training.run import Run
from agentrl_jax.trajectories import Trajectory
from agentrl_jax.workers.pool import Task


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


def draw_utterances(
    run: Run, turns: Sequence[Transition], samples: int
) -> list[list[TokenizedText]]:
    """Utterances that the policy draws in each state."""
    prompts = [turn.state.ids for turn in turns]
    calls = run.runtime.run(
        run.runtime.sample("policy", prompts, samples, (run.experiment.seed, 7))
    )
    return [[decode_ids(call.action, run.agent) for call in utterances] for utterances in calls]


def pairs_of(
    turns: Sequence[Transition], samples: Sequence[Sequence[TokenizedText]]
) -> list[tuple[TokenizedText, TokenizedText, TokenizedText]]:
    """States with two questions of the policy's: one that was answered "No." before, and a new one,
    each the first that was drawn.
    """
    pairs = []
    for turn, utterances in zip(turns, samples, strict=True):
        answers = answered_questions(turn.state)
        texts = [(utterance, utterance.text.strip()) for utterance in utterances]
        old = [x for x, text in texts if answers.get(text) == "No."]
        new = [x for x, text in texts if text.endswith("?") and text not in answers]
        if old and new:
            pairs.append((turn.state, old[0], new[0]))
    return pairs


def correlation_with_returns(
    run: Run,
    trajectories: Sequence[Trajectory],
    samples: int,
    rerolls: int,
    advantage: Callable[[Sequence[TokenizedText], Sequence[TokenizedText]], np.ndarray],
) -> dict[str, float]:
    """The correlation of the critic's advantages with the true ones, over re-rolled games, and rho.

    One return is the true advantage with noise: the correlation with it is that with the true
    advantage times rho.
    """
    rng, environment = np.random.default_rng(0), run.experiment.environment
    posterior = PossibleTargets(environment.options.get("words", "all"))
    predicted, returned, variances = [], [], []
    for i, trajectory in enumerate(trajectories):
        turn = int(rng.integers(len(trajectory.turns)))
        task = Task(environment.name, trajectory.seed, dict(environment.options))
        strategy = Rerolls(trajectory, turn, samples, rerolls, posterior)
        (group,) = run.runtime.collect(strategy, [task], (run.experiment.seed, 8 + i))
        transitions = [transitions_of(t, run.agent, 1.0)[turn] for t in group.trajectories]
        estimate = advantage([x.state for x in transitions], [x.utterance for x in transitions])
        returns = np.array(strategy.returns)
        predicted.append(np.repeat(estimate - estimate.mean(), rerolls))
        returned.append((returns - returns.mean()).ravel())
        variances.append(nested_variance(strategy.returns))
    one_return = float(np.corrcoef(np.concatenate(predicted), np.concatenate(returned))[0, 1])
    rho = mean_variance(variances).rho
    return {"rho": rho, "correlation": one_return / rho if rho else float("nan")}


def main(run_dir: Path, samples: int, states: int, rerolls: int) -> None:
    with Run(config_json.load_config(run_dir), run_dir, quiet=True) as run:
        run.begin_phase("rl")
        algorithm, state = restore_algorithm(run)
        run.runtime.publish(state.params, 0)
        trajectories = run.evaluations.all_trajectories(run.experiment.phases["rl"].label)
        turns = [turn for t in trajectories for turn in transitions_of(t, run.agent, 1.0)]
        sampled_utterances = draw_utterances(run, turns, samples)

        def advantage(
            states: Sequence[TokenizedText], utterances: Sequence[TokenizedText]
        ) -> np.ndarray:
            return algorithm.critic_trainer.advantage(
                state.extra.critic, states, utterances, ProcessGroup()
            )

        pairs = pairs_of(turns, sampled_utterances)
        won = [turn for turn in turns if turn.terminated and turn.reward == 0]
        each = [
            (turn.state, x)
            for turn, utterances in zip(turns, sampled_utterances)
            for x in utterances
        ]
        means = {
            "asked": advantage([x for x, _, _ in pairs], [x for _, x, _ in pairs]),
            "new": advantage([x for x, _, _ in pairs], [x for _, _, x in pairs]),
            "drawn": advantage([x for x, _ in each], [x for _, x in each]),
            "ended_well": advantage([x.state for x in won], [x.utterance for x in won]),
        }
        result: dict[str, float] = {
            "pairs": len(pairs),
            "asked_below_new": float(np.mean(means["asked"] < means["new"])),
            **{name: float(np.mean(x)) for name, x in means.items() if len(x)},
        }
        if rerolls:
            result |= correlation_with_returns(
                run, trajectories[:states], samples, rerolls, advantage
            )
    print(json.dumps({name: round(x, 3) for name, x in result.items()}))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--samples", type=int, default=8, help="utterances drawn in each state")
    parser.add_argument("--states", type=int, default=64, help="states with re-rolled games")
    parser.add_argument("--rerolls", type=int, default=0, help="games of each utterance; 0: none")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse_arguments()
    main(arguments.run, arguments.samples, arguments.states, arguments.rerolls)

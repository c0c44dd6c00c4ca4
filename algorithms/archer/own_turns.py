"""`OwnTurns`: the turns that an iteration played, and how the critic predicts their returns."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.returns import reward_to_go
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition
from agentrl_jax.algorithms.archer.twin_trainer import TwinCriticTrainer, UtteranceValues
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.trajectories import Group, Trajectory


@dataclass(frozen=True, eq=False)
class OwnTurns:
    """This process's turns of an iteration, trajectory by trajectory."""

    groups: Sequence[Group]
    episodes: Sequence[Sequence[Transition]]  # of each trajectory of the groups
    # utterances that the policy samples in the state of each turn, all as many
    alternatives: Sequence[Sequence[TokenizedText]]

    @property
    def transitions(self) -> list[Transition]:
        return [transition for episode in self.episodes for transition in episode]

    def texts_to_value(self) -> tuple[list[TokenizedText], list[list[TokenizedText]]]:
        """The states, and for each the turn's utterance followed by the alternatives."""
        transitions = self.transitions
        texts = [[t.utterance, *more] for t, more in zip(transitions, self.alternatives)]
        return [t.state for t in transitions], texts

    def returns(self, gamma: float) -> np.ndarray:
        """The return-to-go of each turn, float64 [n]."""
        parts = [
            reward_to_go(
                np.array([t.reward for t in episode]), np.zeros(len(episode), np.int64), gamma
            )
            for episode in self.episodes
        ]
        return np.concatenate([np.zeros(0), *parts])

    def with_weights(self, weights: np.ndarray) -> list[Group]:
        """The groups with each turn's weight in the actor's loss, `info["weight"]`; 0 where a turn
        has no utterance.
        """
        remaining = iter(weights.tolist())

        def weighted(trajectory: Trajectory) -> Trajectory:
            turns = tuple(
                dataclasses.replace(
                    turn,
                    info={
                        **turn.info,
                        "weight": next(remaining) if len(turn.calls[-1].action) else 0.0,
                    },
                )
                for turn in trajectory.turns
            )
            return trajectory.replace(turns=turns)

        return [
            dataclasses.replace(group, trajectories=tuple(map(weighted, group.trajectories)))
            for group in self.groups
        ]

    def repeated(self) -> int:
        """How many turns repeat an utterance of their episode."""
        return sum(
            len(episode) - len({t.utterance.ids.tobytes() for t in episode})
            for episode in self.episodes
        )


def baseline(values: UtteranceValues) -> np.ndarray:
    """m of each turn, [n]: the mean of Q over the alternatives, or V where there are none; `values`
    are of `OwnTurns.texts_to_value`.
    """
    return values.q[:, 1:].mean(axis=1) if values.q.shape[1] > 1 else values.v


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation; 0 where one does not vary."""
    spread = float(np.std(x) * np.std(y)) if len(x) else 0.0
    if spread <= 1e-12:
        return 0.0
    return float(np.mean((x - x.mean()) * (y - y.mean())) / spread)


def state_share(advantage: np.ndarray) -> float:
    """The share of the variance of advantages [n, k] that is between states: B / (B + W).

    W is the mean variance within a state, B the variance of the states' means less W / k, the part
    of it that k utterances a state leave to chance; 0 where nothing varies.
    """
    if len(advantage) < 2 or advantage.shape[1] < 2:
        return 0.0
    within = float(np.mean(np.var(advantage, axis=1, ddof=1)))
    between = float(np.var(advantage.mean(axis=1), ddof=1)) - within / advantage.shape[1]
    total = max(between, 0.0) + within
    return max(between, 0.0) / total if total > 0 else 0.0


def own_turn_metrics(
    own_turns: OwnTurns, critic: TrainState, trainer: TwinCriticTrainer, process_group: ProcessGroup
) -> dict[str, float]:
    """How well a critic that was not trained on these turns predicts their returns, over all
    processes; and how many utterances repeat one of their episode.
    """
    values = trainer.values(critic, *own_turns.texts_to_value(), process_group)
    has_turns = len(values.v) > 0
    m = baseline(values) if has_turns else values.v
    returns = own_turns.returns(trainer.loss.gamma)
    local = {
        "q": (values.q[:, 0] - m).tolist() if has_turns else [],
        "returns": (returns - m).tolist() if has_turns else [],
        "advantages": (values.q[:, 1:] - values.v[:, None]).tolist() if has_turns else [],
        "repeated": own_turns.repeated(),
    }
    parts = process_group.all_gather("an iteration's own turns", local)
    q, returns = (np.array([x for part in parts for x in part[name]]) for name in ("q", "returns"))
    metrics = {
        "critic/correlation": correlation(q, returns),
        "utterances/repeated": sum(part["repeated"] for part in parts) / max(len(q), 1),
    }
    advantages = np.array([x for part in parts for x in part["advantages"]])
    if advantages.ndim == 2 and advantages.shape[1] > 1:
        metrics["advantage/state_share"] = state_share(advantages)
    return metrics

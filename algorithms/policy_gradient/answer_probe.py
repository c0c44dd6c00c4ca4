"""The policy's log-prob of the correct answer at each turn, which information gain is computed from
(IGPO, arXiv 2510.14967).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import info_field
from agentrl_jax.algorithms.policy_gradient.scoring import scoring_sequence
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.learner.sequences import TokenIndex, TrainingSequence
from agentrl_jax.messages import assistant
from agentrl_jax.renderer import Renderer
from agentrl_jax.trajectories import Group, Turn

# (sequences, their tokens to score) -> log-prob of each token [N]
TokenLogpFn = Callable[[list[TrainingSequence], TokenIndex], np.ndarray]


@dataclass
class AnswerProbe:
    """Sets `info["gold_logp"]` of every turn: the mean over the answer's tokens of log P(answer |
    state), teacher-forced after a cue.

    The answer is `info["gold"]` of the turn. Costs one more forward pass over each turn's prompt.

    Args:
        cue: what the policy writes before an answer: "answer ".
        agent: whose probability it is.
        suffix: what it writes after one, "</answer>", and is not scored; empty: the end of the
            message is scored with the answer.
    """

    cue: str
    agent: str = "policy"
    suffix: str = field(default="", metadata=OMITTED_AT_DEFAULT)

    def __call__(
        self, groups: Sequence[Group], renderer: Renderer, token_logp_fn: TokenLogpFn
    ) -> list[Group]:
        turns = [
            turn
            for group in groups
            for trajectory in group.trajectories
            for turn in trajectory.turns
        ]
        sequences = [self._answer_sequence(turn, renderer) for turn in turns]
        n = len(sequences)
        owner = np.repeat(np.arange(n), [int(x.action_mask.sum()) for x in sequences])
        position = np.concatenate(
            [np.flatnonzero(x.action_mask) for x in sequences] or [np.zeros(0, np.int64)]
        )
        # Each sequence is a turn, a trajectory and a group of its own.
        rank, zeros = np.arange(n), np.zeros(n)
        indices = TokenIndex(owner, position, owner, rank, zeros, zeros > 0, rank)
        logp = token_logp_fn(sequences, indices)
        count = np.maximum(np.bincount(owner, minlength=n), 1)
        means = iter((np.bincount(owner, logp, n) / count).tolist())

        def with_gold_logp(turn: Turn) -> Turn:
            return dataclasses.replace(turn, info={**turn.info, "gold_logp": next(means)})

        return [
            dataclasses.replace(
                group,
                trajectories=tuple(
                    t.replace(turns=tuple(map(with_gold_logp, t.turns))) for t in group.trajectories
                ),
            )
            for group in groups
        ]

    def _answer_sequence(self, turn: Turn, renderer: Renderer) -> TrainingSequence:
        """The prompt of the turn's first call, the cue and the answer; `action_mask` marks the
        answer's tokens and its end.
        """
        answer, cue = (
            np.asarray(renderer.action_ids(assistant(f"{self.cue}{text}{self.suffix}")), np.int32)
            for text in (info_field(turn, "gold"), "")
        )
        prompt = turn.calls[0].prompt
        start = _common_prefix(answer, cue)
        end = len(answer)
        if self.suffix:  # it begins after the last token that differs
            end -= min(_common_prefix(answer[::-1], cue[::-1]), len(answer) - start)
        is_answer = np.zeros(len(prompt) + len(answer), bool)
        is_answer[len(prompt) + start : len(prompt) + end] = True
        return scoring_sequence(np.concatenate([prompt, answer]), is_answer)


def _common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many tokens both begin with."""
    shared = min(len(a), len(b))
    differs = np.flatnonzero(a[:shared] != b[:shared])
    return int(differs[0]) if len(differs) else shared

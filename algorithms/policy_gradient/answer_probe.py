"""The policy's log-prob of the correct answer at each turn, which information gain is computed from
(IGPO, arXiv 2510.14967).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import info_field
from agentrl_jax.algorithms.policy_gradient.scoring import scoring_sequence
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
    """

    cue: str  # the text that the policy writes before an answer: "answer "
    agent: str = "policy"

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
            renderer.action_ids(assistant(text))
            for text in (self.cue + str(info_field(turn, "gold")), self.cue)
        )
        shared = min(len(answer), len(cue))
        differs = np.flatnonzero(np.asarray(answer[:shared]) != np.asarray(cue[:shared]))
        prompt = turn.calls[0].prompt
        tokens = np.concatenate([prompt, np.asarray(answer, np.int32)])
        is_answer = np.zeros(len(tokens), bool)
        is_answer[len(prompt) + (int(differs[0]) if len(differs) else shared) :] = True
        return scoring_sequence(tokens, is_answer)

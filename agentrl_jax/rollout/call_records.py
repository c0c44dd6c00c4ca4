"""Invariants of calls and turns: that an engine answered what it was asked, and that each call,
reward and message stands in the turn that it is of.
"""

from collections.abc import Sequence

import numpy as np

from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.messages import Message, with_call_ids
from agentrl_jax.renderer import TokenIds
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory, turn_checksum


def answered_calls(
    call: Call,
    ids: TokenIds,
    sampling: Sampling,
    key: RandomKey,
    images: Sequence[PromptImage] = (),
) -> InvariantCheck:
    """A call answers its request: with its prompt, images, sampling parameters and key, an action
    that is empty only where there was no room for it, and a log-prob and a version for each token.
    """
    wrong = {
        "prompt": not np.array_equal(call.prompt, ids),
        "images": call.image_spans != tuple((image.start, image.end) for image in images)
        or call.images != tuple(image.image.part for image in images),
        "sampling parameters": call.sampling != sampling,
        # An engine that chooses among candidates adds a candidate's index.
        "key": call.key[: len(key)] != key,
        "number of log-probs or versions": not (
            len(call.action) == len(call.sampler_logp) == len(call.version)
        ),
    }
    names = [name for name, is_wrong in wrong.items() if is_wrong]
    is_empty = not len(call.action) and call.finish_reason != "context"
    return InvariantCheck(
        "answered_calls",
        not names and not is_empty,
        f"the call with the key {key} was answered "
        + (f"with another {' and '.join(names)} than was asked for" if names else "")
        + " and " * bool(names and is_empty)
        + f"with an empty action, although it ended by {call.finish_reason!r}" * is_empty,
    )


def placed_calls(groups: Sequence[Group]) -> InvariantCheck:
    """Each trajectory that a session played is of its group's task, and each call that was sampled
    in it is in the turn, and of the agent and the sample, that its key (run, step, task, sample,
    agent, turn) names; a branch has turns of another sample.
    """
    trajectories = [(group, t) for group in groups for t in group.trajectories]
    other_task = sum(
        t.task != group.task and any(turn.checksum for turn in t.turns) for group, t in trajectories
    )
    misplaced = sum(
        not _is_in_place(call, t, i)
        for _, t in trajectories
        for i, turn in enumerate(t.turns)
        if turn.checksum
        for call in turn.calls
        if call.source == "sampled" and len(call.key) >= 6
    )
    return InvariantCheck(
        "placed_calls",
        other_task == misplaced == 0,
        f"of {len(trajectories)} trajectories {other_task} are of another task than their group, "
        f"and {misplaced} calls are not in the episode and turn that they were sampled in",
    )


def _is_in_place(call: Call, trajectory: Trajectory, turn: int) -> bool:
    sample, agent, key_turn = call.key[3:6]
    is_own = sample == trajectory.sample or trajectory.parent is not None
    return is_own and (agent, key_turn) == (trajectory.agent_index, turn)


def recorded_rewards(groups: Sequence[Group]) -> InvariantCheck:
    """Rewards and ends of turns are those of the environment's replies, or what a strategy has made
    of them: no bit has changed since.
    """
    turns = [turn for group in groups for t in group.trajectories for turn in t.turns]
    changed = sum(
        turn.checksum not in (0, turn_checksum(turn.reward, turn.terminated, turn.truncated))
        for turn in turns
    )
    return InvariantCheck(
        "recorded_rewards",
        changed == 0,
        f"of {len(turns)} turns {changed} have another reward or end than the environment's reply",
    )


def reported_rewards(trajectory: Trajectory, rewards: Sequence[float]) -> InvariantCheck:
    """The turns of an episode have the rewards of its environment's replies."""
    recorded = [turn.reward for turn in trajectory.turns]
    return InvariantCheck(
        "recorded_rewards",
        recorded == list(rewards),
        f"the {len(recorded)} turns of an episode of {trajectory.task} have rewards of "
        f"{sum(recorded):g} in all, its environment's {len(rewards)} replies of {sum(rewards):g}",
    )


def recorded_actions(trajectory: Trajectory, index: int, agent: Agent) -> InvariantCheck:
    """The message of a turn is what its sampled tokens say.

    Args:
        trajectory: with turns.
        index: of the turn, modulo their number.
        agent: whose renderer parses the tokens.
    """
    index %= len(trajectory.turns)
    turn = trajectory.turns[index]
    call = turn.calls[-1]
    renderer = agent.for_task(trajectory.task).renderer
    expected = with_call_ids(renderer.parse(call.action, trajectory.tools), index)
    return InvariantCheck(
        "recorded_actions",
        _same(turn.action, expected),
        f"turn {index} of an episode of {trajectory.task} says {turn.action.full_text!r:.100}, "
        f"while its tokens say {expected.full_text!r:.100}",
    )


def _same(a: Message, b: Message) -> bool:
    return (a.content, a.tool_calls) == (b.content, b.tool_calls)


def has_sampled_action(trajectory: Trajectory, index: int) -> bool:
    """Whether a session sampled the action of a turn, modulo their number."""
    if not trajectory.turns:
        return False
    turn = trajectory.turns[index % len(trajectory.turns)]
    return turn.checksum != 0 and bool(turn.calls) and turn.calls[-1].source == "sampled"

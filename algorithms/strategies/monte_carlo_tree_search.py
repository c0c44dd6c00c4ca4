"""`MonteCarloTreeSearch`: demonstrations that a search over the turns of episodes finds.

ViGoRL's warm-up (arXiv 2505.23678).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.agent_session import WaitTracker
from agentrl_jax.rollout.episode import EpisodeStart, Prefix, trajectory_of_steps
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import EnvHandle, StepResult, Task


@dataclass(frozen=True)
class InsertAfter:
    """Puts words after the first marker of an action, such as a doubt where its thought begins."""

    marker: str
    words: str

    def __call__(self, action: Message) -> Message:
        text = action.text.replace(self.marker, self.marker + self.words, 1)
        return replace(action, content=text, raw_text=None)


@dataclass(eq=False)
class TurnNode:
    """A turn that was played, after those of its parents."""

    turns: tuple[Turn, ...] = ()  # from the opening on
    parent: "TurnNode | None" = None
    sample: int = 0  # of the episode that the turns are from
    trajectory: Trajectory | None = None  # of the episode that ended here
    children: list["TurnNode"] = field(default_factory=list)
    visits: int = 0
    successes: int = 0

    def is_closed(self, max_children: int) -> bool:
        """Whether nothing new can be played from here."""
        return self.trajectory is not None or (
            len(self.children) >= max_children
            and all(child.is_closed(max_children) for child in self.children)
        )

    def upper_bound(self, exploration: float) -> float:
        """UCB1: successes / visits + exploration sqrt(log(visits of the parent) / visits)."""
        assert self.parent is not None
        bonus = math.sqrt(math.log(self.parent.visits) / self.visits)
        return self.successes / self.visits + exploration * bonus

    def path(self) -> "Iterator[TurnNode]":
        """The node, its parent and so on to the root."""
        node: TurnNode | None = self
        while node is not None:
            yield node
            node = node.parent


@dataclass
class MonteCarloTreeSearch:
    """Searches an episode's turns by Monte Carlo tree search; the group is what a policy should
    imitate: the shortest success, and successes after a turn that failed.

    From the root the search enters the child with the largest upper confidence bound until a node
    has fewer than `children`; from there an episode is played to its end, whose turns become nodes.
    Its success, 0 or 1, is added to all nodes on its path. A corrected episode plays the success's
    actions after a sibling of one of its turns from which no episode succeeded; it is played anew,
    and kept where it succeeds, too. None has a malformed call. A task without a success has an
    empty group. Turns of the search that are in no episode of the group count in
    `Group.discarded_turns`.

    Args:
        episodes: of a task, at most.
        children: of a node, at most (published: 3).
        exploration: of the upper confidence bound (not published).
        corrections: corrected episodes of a task, at most.
        correct: what the turn after a failed one becomes, for example with words of doubt before
            it; None: as it is.
        agent: plays.
    """

    episodes: int = 12
    children: int = 3
    exploration: float = 1.0
    corrections: int = 1
    correct: Callable[[Message], Message] | None = None
    agent: str = "policy"

    def __post_init__(self) -> None:
        if min(self.episodes, self.children) < 1 or min(self.exploration, self.corrections) < 0:
            raise UserError(
                "a search needs episodes and children >= 1, exploration and corrections >= 0"
            )

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        root, opening, dropped = TurnNode(), (), 0
        for sample in range(self.episodes):
            if root.is_closed(self.children):
                break
            node = self._select(root)
            prefix = Prefix(opening, node.turns, node.sample) if node.turns else None
            trajectory = await runtime.episode(task, self.agent, key, sample, prefix)
            if trajectory is None or not trajectory.turns:
                dropped += 1
                continue
            if trajectory.success is None and trajectory.turns[-1].terminated:
                raise UserError(
                    f"{task.environment} does not say whether it was solved: search in an "
                    "environment that does"
                )
            opening = trajectory.opening
            _add(node, trajectory, sample)
        nodes = [*_nodes(root)]
        num_turns = len(nodes) - 1
        solved = [node for node in nodes if node.trajectory and node.trajectory.success]
        if not solved:
            return Group(task.name, (), dropped, discarded_turns=num_turns)
        best = min(solved, key=lambda node: (len(node.turns), node.sample))
        assert best.trajectory is not None
        corrected = await self._corrected(task, runtime, best)
        discarded = num_turns - len(best.turns)
        # All its turns count, since the episode that it is a branch of is discarded.
        solution = best.trajectory.replace(branch_turn=None)
        return Group(task.name, (solution, *corrected), dropped, discarded)

    def _select(self, root: TurnNode) -> TurnNode:
        """The node from which the next episode is played."""
        node = root
        while len(node.children) >= self.children:
            still_open = [x for x in node.children if not x.is_closed(self.children)]
            node = max(still_open, key=lambda child: child.upper_bound(self.exploration))
        return node

    async def _corrected(self, task: Task, runtime: Runtime, best: TurnNode) -> list[Trajectory]:
        """Successes after a failed sibling of a turn of the best path, the earliest first."""
        agent = runtime.agents[self.agent]
        actions = [turn.action for turn in best.turns]
        corrected: list[Trajectory] = []
        for node in reversed([*best.path()][:-1]):
            assert node.parent is not None
            at = len(node.parent.turns)
            for sibling in node.parent.children:
                if len(corrected) == self.corrections:
                    return corrected
                if sibling.successes or sibling.trajectory is not None:
                    continue
                first, *rest = actions[at:]
                again = self.correct(first) if self.correct else first
                replayed = [*actions[:at], sibling.turns[-1].action, again, *rest]
                if any(call.error for action in replayed for call in action.tool_calls):
                    continue
                trajectory = await _play(
                    task, runtime, agent, replayed, self.episodes + len(corrected)
                )
                if trajectory is not None and trajectory.success:
                    corrected.append(trajectory)
        return corrected


def _nodes(root: TurnNode) -> "Iterator[TurnNode]":
    """The node and all below it."""
    yield root
    for child in root.children:
        yield from _nodes(child)


def _add(node: TurnNode, trajectory: Trajectory, sample: int) -> None:
    """Add the new turns of an episode below a node, and its success to the path."""
    for count in range(len(node.turns) + 1, len(trajectory.turns) + 1):
        child = TurnNode(trajectory.turns[:count], node, sample)
        node.children.append(child)
        node = child
    node.trajectory = trajectory
    for ancestor in node.path():
        ancestor.visits += 1
        ancestor.successes += bool(trajectory.success)


async def _play(
    task: Task, runtime: Runtime, agent: Agent, actions: Sequence[Message], sample: int
) -> Trajectory | None:
    """An episode of given actions, as a demonstration; None where the environment failed."""

    async def play(env: EnvHandle, track_wait: WaitTracker) -> Trajectory:
        steps: list[tuple[Message, StepResult]] = []
        with track_wait(0, env.location):
            start = EpisodeStart.of_reset(*(await env.reset()))
            for action in actions:
                steps.append((action, await env.step(action)))
                _, _, terminated, truncated, _ = steps[-1][1]
                if terminated or truncated:
                    break
        return trajectory_of_steps(env, start, steps, sample, agent.name)

    trajectory = await runtime.with_retries(task, sample, play)
    return trajectory and add_demonstration_calls(trajectory, agent)

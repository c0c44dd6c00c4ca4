"""Groups whose turns have any number of calls and of policy-written tokens, none too, and a table
of their tokens made by plain loops.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from support.fixtures import VOCAB_SIZE, make_call

from agentrl_jax.messages import assistant, user
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn

# (new prompt tokens, forced tokens, sampled tokens, whether the prompt is rewritten)
CallShape = tuple[int, int, int, bool]
RaggedTurn = tuple[list[CallShape], float, bool]  # its calls, reward, and whether it terminated
RaggedTrajectory = tuple[list[RaggedTurn], bool]  # its turns, and whether a limit cut it
call_shapes = st.tuples(
    st.integers(1, 3), st.sampled_from([0, 0, 1, 2]), st.integers(0, 3), st.booleans()
)
ragged_turns = st.tuples(
    st.lists(call_shapes, max_size=3),
    st.sampled_from([-2.0, -0.5, 0.0, 0.0, 1.0, 3.0]),
    st.sampled_from([False, False, True]),
)
ragged_batches = st.lists(
    st.lists(st.tuples(st.lists(ragged_turns, max_size=4), st.booleans()), max_size=3), max_size=3
)


def ragged_groups(
    shapes: Sequence[Sequence[RaggedTrajectory]], seed: int = 0, temperature: float | None = None
) -> list[Group]:
    """Random groups of these shapes; `temperature` None: a random one for each call."""
    rng = np.random.default_rng(seed)
    return [
        Group(f"task {g}", tuple(_trajectory(*shape, rng, temperature) for shape in group))
        for g, group in enumerate(shapes)
    ]


def _trajectory(
    turns: Sequence[RaggedTurn],
    is_cut: bool,
    rng: np.random.Generator,
    temperature: float | None,
) -> Trajectory:
    recorded, context = [], np.zeros(0, np.int32)
    for r, (calls, reward, terminated) in enumerate(turns):
        turn_calls: list[Call] = []
        for shape in calls:
            turn_calls.append(_call(shape, context, rng, temperature))
            context = turn_calls[-1].ids
        message = assistant(f"turn {r}")
        recorded.append(
            Turn(tuple(turn_calls), message, (user("o"),), reward, terminated=terminated)
        )
    stop_reason = "turns" if is_cut else "terminated"
    return Trajectory((user("go"),), tuple(recorded)).replace(stop_reason=stop_reason)


def _call(
    shape: CallShape, context: np.ndarray, rng: np.random.Generator, temperature: float | None
) -> Call:
    num_new, num_forced, num_sampled, is_rewritten = shape
    start = np.zeros(0, np.int32) if is_rewritten else context
    prompt = np.concatenate([start, rng.integers(0, VOCAB_SIZE, num_new, np.int32)])
    action = rng.integers(0, VOCAB_SIZE, num_forced + num_sampled, np.int32)
    call = make_call(
        prompt,
        action,
        logp=-rng.random(len(action), np.float32),
        version=rng.integers(0, 3, len(action), np.int32),
    )
    chosen = float(rng.choice([0.5, 1.0, 1.5])) if temperature is None else temperature
    forced = tuple(action[:num_forced].tolist())
    return dataclasses.replace(call, sampling=Sampling(temperature=chosen, forced=forced))


@dataclasses.dataclass
class TokenTable:
    """Which tokens are whose, by loops over the groups: turns and trajectories are numbered as
    they come, those without turns left out.
    """

    turns: list[Turn] = dataclasses.field(default_factory=list)
    trajectories: list[Trajectory] = dataclasses.field(default_factory=list)
    group_of: list[int] = dataclasses.field(default_factory=list)  # of each trajectory
    turns_of: list[list[int]] = dataclasses.field(default_factory=list)  # of each trajectory
    tokens_of: list[list[int]] = dataclasses.field(default_factory=list)  # of each turn
    # of each token: its call, and its place in the call's action
    places: list[tuple[Call, int]] = dataclasses.field(default_factory=list)

    def trajectory_tokens(self, j: int) -> list[int]:
        return [n for r in self.turns_of[j] for n in self.tokens_of[r]]

    def reward_token(self, r: int) -> int | None:
        """The token that a turn's reward is on: its last one, or else the last one before it in
        the trajectory, or else the first one after it.
        """
        (j,) = (j for j, turns in enumerate(self.turns_of) if r in turns)
        tokens = self.tokens_of[r]
        before = [n for q in self.turns_of[j] if q < r for n in self.tokens_of[q]]
        after = [n for q in self.turns_of[j] if q > r for n in self.tokens_of[q]]
        return tokens[-1] if tokens else before[-1] if before else after[0] if after else None

    def rewards(self) -> list[float]:
        """The reward on each token."""
        rewards = [0.0] * len(self.places)
        for r, turn in enumerate(self.turns):
            token = self.reward_token(r)
            if token is not None:
                rewards[token] += turn.reward
        return rewards


def token_table(groups: Sequence[Group]) -> TokenTable:
    """The table of some groups."""
    table = TokenTable()
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            if not trajectory.turns:
                continue
            table.trajectories.append(trajectory)
            table.group_of.append(g)
            table.turns_of.append([])
            for turn in trajectory.turns:
                table.turns_of[-1].append(len(table.turns))
                table.turns.append(turn)
                table.tokens_of.append([])
                for call in turn.calls:
                    for k in range(len(call.sampling.forced), len(call.action)):
                        table.tokens_of[-1].append(len(table.places))
                        table.places.append((call, k))
    return table

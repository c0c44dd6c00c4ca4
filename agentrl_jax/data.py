"""Demonstrations, a file or a data set's folder: read through grain, resumable at the exact record."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from agentrl_jax.episodes import scripted_calls
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.records import decode
from agentrl_jax.shards import FACTS, RECIPE, fact_of, facts_of, whole
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Group, Trajectory

EPOCHS = 2**31  # without end, for all that matters: an endless grain data set cannot be had in batches of 1


def open_source(path: Path) -> grain.sources.RandomAccessDataSource[bytes]:
    """A file, or the shards of a data set's folder, as a grain data source. Raises UserError where it is missing, empty or corrupt."""
    if not path.is_dir():
        return _opened([path])
    if not (path / RECIPE).exists():
        raise UserError(f"there is no demonstration file {path}: it is a folder, and no data set's")
    recipe = whole(path)
    source = _opened([recipe.shard_path(path, shard) for shard in range(recipe.shards)])
    if len(source) != recipe.records:
        raise UserError(f"the data set {path} holds {len(source)} records, not {recipe.records}: delete it and write it anew")
    return source


def _opened(paths: Sequence[Path]) -> grain.sources.RandomAccessDataSource[bytes]:
    for path in paths:
        if not path.is_file():
            raise UserError(f"there is no demonstration file {path}: check the path, or leave it empty to have one written")
        if path.stat().st_size == 0:
            raise UserError(f"the demonstration file {path} is empty: delete it and write it anew")
    try:
        source: Any = grain.sources.ArrayRecordDataSource(list(map(str, paths)))
        count = len(source)
    except Exception as error:
        if len(paths) > 1:  # say which
            for path in paths:
                _opened([path])
        raise UserError(f"the demonstration file {paths[0]} is corrupt or no ArrayRecord file: write it anew") from error
    if count == 0:
        raise UserError(f"the demonstration file {paths[0]} holds no record: write it anew")
    return source


def read(path: Path, limit: int | None = None) -> list[Trajectory]:
    """The demonstrations of a file, or its first `limit`."""
    source = open_source(path)
    return [demonstration(source, i) for i in range(min(len(source), limit or len(source)))]


def demonstration(source: grain.sources.RandomAccessDataSource[bytes], place: int) -> Trajectory:
    """One of them. Raises UserError where its bytes are damaged or no record."""
    try:
        record = source[place]
    except RuntimeError as error:  # each has a checksum
        raise UserError(f"the demonstration {place} is damaged ({str(error).partition(';')[0]:.100}): write its file anew") from error
    return decode(record)


def facts_in(path: Path) -> np.ndarray:
    """Return, turns and success of each record: from a data set's index, or of a file, whose records are all decoded for it."""
    return facts_of(path) if path.is_dir() else np.array(list(map(fact_of, read(path))), FACTS)


def chosen(facts: np.ndarray, share: float, won: bool) -> np.ndarray:
    """Which records filtered behaviour cloning draws from: the share with the highest returns, of the successful ones where `won`.

    They stay in their order, and of equals the earlier are taken. Raises UserError where the share is none.
    """
    if not 0 < share <= 1:
        raise UserError(f"the best share of the demonstrations is above 0 and at most 1, not {share}")
    places = np.flatnonzero(facts["success"] == 1) if won else np.arange(len(facts))
    order = places[np.argsort(-facts["return"][places], kind="stable")]
    return np.sort(order[: max(1, round(share * len(order)))])


class DemonstrationFeed:
    """Endless shuffled batches of demonstrations with their calls, one group a demonstration; of several hosts, its share of each.

    All hosts are at the same record, so any number of them goes on from the same state; each reads its own records alone.
    """

    def __init__(
        self, path: Path, agent: Agent, batch: int, seed: int, hosts: Hosts | None = None, best: float = 1.0, won: bool = False
    ) -> None:
        """`path`: a file or a data set's folder. `best` and `won` say which records are drawn from (`chosen`)."""
        records = open_source(path)
        places: Sequence[int] = range(len(records)) if best == 1 and not won else chosen(facts_in(path), best, won).tolist()
        if len(places) < batch:
            raise UserError(f"the demonstration file {path} holds {len(places)} records, fewer than one batch of {batch}")

        def with_calls(place: int) -> Group:
            trajectory = scripted_calls(demonstration(records, place), agent)
            check_budget(trajectory, agent)
            return Group(trajectory.task, (trajectory,))

        def own(places: Sequence[int]) -> list[Group]:
            return list(map(with_calls, (hosts or Hosts()).mine(places)))

        data = grain.MapDataset.source(places).seed(seed).shuffle().repeat(EPOCHS).batch(batch, batch_fn=list).map(own)
        self._iterator = iter(data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))

    def next(self, step: int) -> list[Group]:
        return next(self._iterator)

    def state(self) -> Any:
        """Plain JSON data."""
        return self._iterator.get_state()

    def load(self, state: Any) -> None:
        self._iterator.set_state(state)


def check_budget(trajectory: Trajectory, agent: Agent) -> None:
    """Raises UserError where an action is longer than the agent may write: it would be taught what it can never say."""
    for turn in trajectory.turns:
        length, budget = len(turn.calls[-1].action), agent.sampling.budget
        if length > budget:
            raise UserError(
                f"the demonstrated action {turn.action.text!r} takes {length} tokens, an agent's budget is {budget}: raise agent.budget"
            )


def returns(trajectories: Sequence[Trajectory]) -> np.ndarray:
    return np.asarray([t.total_reward for t in trajectories], np.float64)


def texts(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """Every text of the conversations, actions with their stop."""
    for trajectory in trajectories:
        for message in trajectory.messages:
            yield message.text if message.text.endswith("\n") else message.text + "\n"

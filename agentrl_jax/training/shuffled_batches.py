"""`ShuffledBatches`: endless shuffled batches of items through grain, resumable at the exact
item.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grain

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.training.config import ExperienceIterator
from agentrl_jax.trajectories import Group

T = TypeVar("T")
EPOCHS = 2**31  # practically endless: grain cannot batch an endless dataset by 1


class ShuffledBatches(ExperienceIterator):
    """A group for each item of a batch; every epoch has another order.

    Each process loads only its own items of a batch. The state is the same in all processes and for
    any number of them, so a run can be resumed by another number of processes.
    """

    def __init__(
        self,
        items: Sequence[T],
        batch: int,
        seed: int,
        load_group: Callable[[T], Group],
        process_group: ProcessGroup | None = None,
    ) -> None:
        """Start at the first batch.

        Args:
            items: at least one batch of them.
            batch: items per step, over all processes.
            seed: of the shuffle.
            load_group: the group of an item; called in the order of the batches.
            process_group: of the run; None: this process alone.
        """
        processes = process_group or ProcessGroup()

        def load_local_groups(items: Sequence[T]) -> list[Group]:
            return list(map(load_group, processes.local_items(items)))

        data = (
            grain.MapDataset.source(items)
            .seed(seed)
            .shuffle()
            .repeat(EPOCHS)
            .batch(batch, batch_fn=list)
            .map(load_local_groups)
        )
        self._iterator = iter(
            data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
        )

    def next(self, step: int) -> list[Group]:
        return next(self._iterator)

    def state(self) -> Any:
        return self._iterator.get_state()

    def load(self, state: Any) -> None:
        self._iterator.set_state(state)

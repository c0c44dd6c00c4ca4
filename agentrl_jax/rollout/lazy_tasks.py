"""`LazyTasks`: tasks that are made when they are indexed."""

from collections.abc import Callable, Iterator, Sequence

from agentrl_jax.workers.pool import Task


class LazyTasks:
    """Tasks that are made when they are indexed, so that a process reads only its own.

    It is no `Sequence`, or a check of types at run time would make one of them.
    """

    def __init__(self, count: int, make_task: Callable[[int], Task]) -> None:
        self._count, self._make_task = count, make_task

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Task:
        return self._make_task(range(self._count)[index])

    def __iter__(self) -> Iterator[Task]:
        return map(self._make_task, range(self._count))


Tasks = LazyTasks | Sequence[Task]

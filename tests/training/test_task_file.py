"""`TaskFile`: each record once an epoch, resumed at the exact record, read by its process alone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.small_runs import small_experiment

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.storage.record_files import JsonLines
from agentrl_jax.training.async_rollouts import StepTasks
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_file import TaskFile
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool, Task

CHAIN = EnvironmentSpec("agentrl_jax.envs:agentrl/Chain-v0", {"length": 3})
SUMS = EnvironmentSpec("agentrl_jax.envs:agentrl/Arithmetic-v0", {"largest": 9})


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.fixture
def ten(tmp_path: Path) -> TaskFile:
    """Ten tasks of one environment."""
    return TaskFile(write(tmp_path / "ten.jsonl", [{"options": {"letters": i}} for i in range(10)]))


def draws(iterator: Any, steps: range, count: int) -> list[list[Task]]:
    return [list(iterator.draw(step, 0, count)) for step in steps]


def letters(tasks: list[Task]) -> list[int]:
    return [task.options["letters"] for task in tasks]


def test_every_epoch_has_every_record_once_in_an_order_of_its_own(ten: TaskFile):
    iterator = ten.open(3, CHAIN)
    epochs = [letters(tasks) for tasks in draws(iterator, range(4), 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 4
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert iterator.metrics() == {"epoch": 4.0}
    ordered = TaskFile(ten.path, shuffle=False).open(3, CHAIN)
    assert [letters(tasks) for tasks in draws(ordered, range(3), 6)] == [
        [0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 0, 1], [2, 3, 4, 5, 6, 7]
    ]  # fmt: skip


def test_a_task_is_the_same_in_every_epoch_and_names_its_record(ten: TaskFile):
    first, second = draws(ten.open(3, CHAIN), range(2), 10)
    assert {t.name: t for t in first} == {t.name: t for t in second}
    task = next(t for t in first if t.options["letters"] == 7)
    assert task.name == f"{CHAIN.name}#record7"
    assert task.options == {"length": 3, "letters": 7} and task.reset_options is None
    assert len({t.seed for t in first}) == 10
    assert {t.seed for t in first}.isdisjoint(t.seed for t in ten.open(4, CHAIN).draw(0, 0, 10))


def test_it_resumes_at_the_exact_record(ten: TaskFile):
    unbroken, first = ten.open(3, CHAIN), ten.open(3, CHAIN)
    expected = draws(unbroken, range(6), 7)
    draws(first, range(3), 7)
    second = ten.open(3, CHAIN)
    second.load(json.loads(json.dumps(first.state())))
    assert draws(second, range(3, 6), 7) == expected[3:] != draws(ten.open(3, CHAIN), range(3), 7)


def test_a_process_reads_the_records_of_its_own_tasks_alone(
    ten: TaskFile, monkeypatch: pytest.MonkeyPatch
):
    reads: list[int] = []
    read = JsonLines.__getitem__

    def counted(self: JsonLines, index: int) -> Any:
        reads.append(index)
        return read(self, index)

    monkeypatch.setattr(JsonLines, "__getitem__", counted)

    class EmptyGroups:
        """Plays nothing."""

        async def collect(self, task: Task, runtime: Runtime, key: Any) -> Group:
            return Group(task.name, ())

    mixture = Mixture({"file": ten, "new": SUMS})
    names = []
    for index in range(2):
        tasks = mixture.open(3, CHAIN).draw(0, 0, 9)
        group = ProcessGroup.__new__(ProcessGroup)
        group.index, group.count = index, 2
        with Runtime({}, {}, InlinePool()) as runtime:
            groups = runtime.collect(EmptyGroups(), tasks, (0, 0), group)
        assert len(groups) == (5, 4)[index]
        assert len(reads) == sum("file" in group.task for group in groups)
        names.append([group.task for group in groups])
        reads.clear()
    everything = [task.name for task in mixture.open(3, CHAIN).draw(0, 0, 9)]
    assert [name for pair in zip(*names) for name in pair] == everything[:8]


def test_asynchronous_steps_are_those_of_synchronous_ones_also_after_a_resumption(ten: TaskFile):
    source = Mixture({"file": ten, "new": SUMS}, {"file": 2, "new": 1})
    rollouts = Rollouts(5, task_source=source)
    experiment = small_experiment(rollouts)
    iterator = source.open(experiment.seed, experiment.environment)
    expected = draws(iterator, range(6), 5)
    steps, resumed = StepTasks(rollouts, experiment), StepTasks(rollouts, experiment)
    assert list(steps.labels) == ["file", "new"]
    for step in (4, 1, 5, 0, 2, 3):  # a resumed run asks for old steps, too
        for tasks in (steps.tasks(step), resumed.tasks(step)):
            assert [task.name for task in tasks] == [task.name for task in expected[step]]
            assert [task.group for task in tasks] == list(range(step * 5, step * 5 + 5))


def test_records_name_environments_by_label_and_fill_options_and_seeds(tmp_path: Path):
    path = write(
        tmp_path / "tasks.jsonl",
        [
            {"environment": "chain", "options": {"letters": 4}, "seed": 5},
            {"environment": "sums", "reset_options": {"x": [1]}},
            {"environment": "sums", "options": None, "reset_options": None, "seed": None},
        ],
    )
    source = TaskFile(path, environments={"chain": CHAIN, "sums": SUMS})
    assert source.labeled_environments(CHAIN) == {"chain": CHAIN, "sums": SUMS}
    first, second, third = source.fixed_tasks(9, 0, CHAIN)
    assert first == Task(
        CHAIN.name, 5, {"length": 3, "letters": 4}, label="chain", record="record0"
    )
    assert second.reset_options == {"x": [1]} and second.environment == SUMS.name
    assert third.options == SUMS.options and third.reset_options is None
    with Runtime({}, {}, InlinePool()) as runtime:
        (group,) = runtime.collect(ScriptedEpisodes("expert"), [first], (0, 0))
    assert group.task == "chain#record0" and group.trajectories[0].environment == "chain"


def test_fields_of_a_dataset_are_mapped_to_options(tmp_path: Path):
    records = [{"question": f"q{i}", "answer": i, "id": "x", "seed": i} for i in range(3)]
    source = TaskFile(
        write(tmp_path / "data.jsonl", records),
        options={"largest": "answer"},
        reset_options={"text": "question"},
    )
    tasks = source.fixed_tasks(2, 0, SUMS)
    assert [(t.options, t.reset_options, t.seed) for t in tasks] == [
        ({"largest": 0}, {"text": "q0"}, 0), ({"largest": 1}, {"text": "q1"}, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "fields", "sentence"),
    [
        ({"option": {}}, {}, "no field 'option', only environment"),
        ({"options": [1]}, {}, "'options' must be an object"),
        ({"seed": -1}, {}, '"seed" must be an integer'),
        ({"seed": True}, {}, '"seed" must be an integer'),
        ({"environment": "os:system"}, {}, r"\"environment\" is 'os:system' and must be one of"),
        ({"a": 1}, {"options": {"x": "b"}}, "no field 'b', which TaskFile maps"),
        (
            {},
            {"environments": {"chain": CHAIN, "sums": SUMS}},
            r"is None and must be one of \['chain', 'sums'\]",
        ),
    ],
)
def test_a_record_that_is_no_task_is_named(
    tmp_path: Path, record: dict, fields: dict, sentence: str
):
    good = {"environment": "chain", "b": 1} if fields else {}
    source: TaskSource = TaskFile(write(tmp_path / "bad.jsonl", [good, record]), **fields)
    with pytest.raises(UserError, match=rf"bad\.jsonl, line 2: .*{sentence}"):
        source.fixed_tasks(2, 0, CHAIN)[1]


def test_labels_are_drawn_together_in_a_mixture_and_the_state_is_the_position(ten: TaskFile):
    source = Mixture({"file": ten, "new": SUMS})
    unbroken, first, second = (source.open(3, CHAIN) for _ in range(3))
    expected = draws(unbroken, range(6), 5)
    draws(first, range(4), 5)
    assert first.state() == {"members": {"file": Counter(
        task.label for tasks in expected[:4] for task in tasks
    )["file"]}}  # fmt: skip
    second.load(json.loads(json.dumps(first.state())))
    assert draws(second, range(4, 6), 5) == expected[4:]
    assert second.metrics()["file/epoch"] == pytest.approx(
        sum(task.label == "file" for tasks in expected for task in tasks) / 10
    )

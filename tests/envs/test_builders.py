"""The `tensorflow_datasets` builders return every record of their dataset."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.envs.lmrl.builders import FEATURES, LmrlGym, ScriptedDatasetConfig, to_example
from agentrl_jax.envs.lmrl.published_statistics import PUBLISHED_DATASETS
from agentrl_jax.errors import UserError
from agentrl_jax.training import demonstrations

TINY = ScriptedDatasetConfig(
    name="tiny", train=PUBLISHED_DATASETS["dealer"].manifest(12, shards=3), validation=5
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tfds")
    LmrlGym(config=TINY, data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


def rows(example: dict[str, Any]) -> dict[str, Any]:
    """An example with one dict per turn, and str for bytes."""
    turns = {name: np.asarray(column).tolist() for name, column in example["turns"].items()}
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in example.items()
    }
    listed = [dict(zip(turns, turn)) for turn in zip(*turns.values(), strict=True)]
    return {name: text(value) for name, value in {**plain, "turns": listed}.items()}


def text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return (
        [{name: text(field) for name, field in turn.items()} for turn in value]
        if isinstance(value, list)
        else value
    )


def test_a_prepared_dataset_returns_every_record_in_any_order(folder: Path):
    builder = LmrlGym(config=TINY, data_dir=folder, file_format="array_record")
    sources: Any = builder.as_data_source()
    for split, count in (("train", 12), ("validation", 5)):
        written = demonstrations.open_source(folder / "downloads" / "lmrl_gym" / "tiny" / split)
        source = sources[split]
        assert len(source) == len(written) == builder.info.splits[split].num_examples == count
        for i in (count - 1, 0, count // 2, *range(count)):
            example, expected = source[i], to_example(written[i])
            assert set(example) == set(FEATURES) and isinstance(example["opening"], bytes)
            rewards = [np.float32(turn.pop("reward")) for turn in expected["turns"]]
            record = rows(example)
            assert [np.float32(turn.pop("reward")) for turn in record["turns"]] == rewards
            assert np.float32(record.pop("return")) == np.float32(expected.pop("return"))
            assert record == expected
    tasks = [{source[i]["task"] for i in range(len(source))} for source in sources.values()]
    assert len(tasks[0]) == 12 and len(tasks[1]) == 5 and not tasks[0] & tasks[1]


def test_every_published_dataset_has_its_published_size():
    configs = {config.name: config for config in LmrlGym.BUILDER_CONFIGS}
    assert configs.keys() == PUBLISHED_DATASETS.keys()
    sizes = {name: config.train.records for name, config in configs.items() if config.train}
    assert sizes == {
        "maze_fo": 1240,
        "maze_po": 1240,
        "nav_fo": 2500,
        "nav_po": 2500,
        "wordle": 10**6,
        "chess": 625_000,
        "endgames": 97_756,
        "questions": 100_000,
        "city": 100_000,
        "dealer": 19_000,
    }
    assert all(
        config.validation == config.train.records // 100 > 0
        for config in configs.values()
        if config.train
    )


def test_a_prepared_dataset_is_read_as_demonstrations(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    written = demonstrations.open_source(folder / "downloads" / "lmrl_gym" / "tiny" / "validation")
    prepared = folder / "lmrl_gym" / "tiny" / "1.0.0"
    source = demonstrations.open_source(Path(f"{prepared}#validation"))
    assert len(source) == len(written) == 5
    for i in range(5):
        examples = to_example(source[i]), to_example(written[i])
        rewards = [[np.float32(t.pop("reward")) for t in x["turns"]] for x in examples]
        assert examples[0]["turns"] == examples[1]["turns"] and rewards[0] == rewards[1]
        assert source[i].opening == written[i].opening and source[i].task == written[i].task
        assert source[i].success == written[i].success
    builder = LmrlGym(config=TINY, data_dir=folder, file_format="array_record")
    monkeypatch.setattr("tensorflow_datasets.builder", lambda name, try_gcs: builder)
    assert len(demonstrations.open_source(Path("tfds:lmrl_gym/tiny"))) == 12


def test_a_builder_that_is_not_there_is_reported_in_one_sentence():
    with pytest.raises(UserError, match="there is no builder 'nothing_of_the_kind'"):
        demonstrations.open_source(Path("tfds:nothing_of_the_kind"))

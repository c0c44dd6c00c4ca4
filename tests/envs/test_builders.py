"""The `tensorflow_datasets` builders give back every record of the data set that they are made of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax import data
from agentrl_jax.envs.lmrl.builders import FEATURES, LmrlGym, PlayConfig, example_of
from agentrl_jax.envs.lmrl.published import PUBLISHED

TINY = PlayConfig(name="tiny", train=PUBLISHED["dealer"].recipe(12, shards=3), validation=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tfds")
    LmrlGym(config=TINY, data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


def rows(example: dict[str, Any]) -> dict[str, Any]:
    """An example with its turns one by one, and text for bytes."""
    turns = {name: np.asarray(column).tolist() for name, column in example["turns"].items()}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in example.items()}
    listed = [dict(zip(turns, turn)) for turn in zip(*turns.values(), strict=True)]
    return {name: text(value) for name, value in {**plain, "turns": listed}.items()}


def text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [{name: text(one) for name, one in turn.items()} for turn in value] if isinstance(value, list) else value


def test_a_prepared_set_gives_back_every_record_at_random(folder: Path):
    builder = LmrlGym(config=TINY, data_dir=folder, file_format="array_record")
    sources: Any = builder.as_data_source()
    for split, count in (("train", 12), ("validation", 5)):
        written = data.open_source(folder / "downloads" / "lmrl_gym" / "tiny" / split)
        source = sources[split]
        assert len(source) == len(written) == builder.info.splits[split].num_examples == count
        for i in (count - 1, 0, count // 2, *range(count)):
            found, expected = source[i], example_of(data.demonstration(written, i))
            assert set(found) == set(FEATURES) and isinstance(found["opening"], bytes)
            rewards = [np.float32(turn.pop("reward")) for turn in expected["turns"]]
            told = rows(found)
            assert [np.float32(turn.pop("reward")) for turn in told["turns"]] == rewards
            assert np.float32(told.pop("return")) == np.float32(expected.pop("return"))
            assert told == expected
    tasks = [{source[i]["task"] for i in range(len(source))} for source in sources.values()]
    assert len(tasks[0]) == 12 and len(tasks[1]) == 5 and not tasks[0] & tasks[1]


def test_every_published_set_has_its_size_and_player():
    configs = {config.name: config for config in LmrlGym.BUILDER_CONFIGS}
    assert configs.keys() == PUBLISHED.keys()
    sizes = {name: config.train.records for name, config in configs.items() if config.train}
    assert sizes == {
        "maze_fo": 1240, "maze_po": 1240, "nav_fo": 2500, "nav_po": 2500, "wordle": 10**6, "chess": 625_000,
        "endgames": 97_756, "questions": 100_000, "city": 100_000, "dealer": 19_000,
    }  # fmt: skip
    assert all(config.validation == config.train.records // 100 > 0 for config in configs.values() if config.train)

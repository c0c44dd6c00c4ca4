"""Record files: every format gives the same records by index, in any order."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from agentrl_jax.errors import UserError
from agentrl_jax.storage import record_files
from agentrl_jax.storage.record_files import open_records

RECORDS: list[dict[str, Any]] = [
    {"name": f"é{i}", "seed": i, "options": {"size": i, "words": ["a"] * (i % 3)}}
    for i in range(25)
]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_parquet(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(records), path, row_group_size=4)
    return path


def write_arrow(path: Path, records: list[dict[str, Any]], stream: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(records)
    open_writer = pa.ipc.new_stream if stream else pa.ipc.new_file
    with open_writer(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


WRITERS = {
    "a.jsonl": write_jsonl,
    "a.parquet": write_parquet,
    "stream.arrow": write_arrow,
    "file.arrow": lambda path, records: write_arrow(path, records, stream=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_the_same_records_by_index(tmp_path: Path, name: str):
    source = open_records(WRITERS[name](tmp_path / name, RECORDS))
    assert len(source) == 25
    order = np.random.default_rng(0).permutation(25).tolist()
    assert [source[i] for i in order] == [RECORDS[i] for i in order]
    assert source.location(7).startswith(f"{tmp_path / name}, ")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(source.__getitem__, order * 3)) == [RECORDS[i] for i in order * 3]


def test_blank_lines_at_the_end_and_a_missing_last_line_feed_do_not_matter(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    for end in ("", "\n", "\n\n  \n", "\n\t"):
        path.write_text('{"a": 1}\n{"a": "\\n"}\n{"a": 3}' + end)
        source = open_records(path)
        assert [source[i]["a"] for i in range(len(source))] == [1, "\n", 3]
        assert source.location(1) == f"{path}, line 2"


@pytest.mark.parametrize(
    ("content", "line"),
    [("\n{}\n", 1), ("{}\n\n{}\n", 2), ("{}\n{}\n \t\r\n\n{}", 3)],
)
def test_a_blank_line_before_a_record_is_an_error_that_names_it(
    tmp_path: Path, content: str, line: int
):
    (tmp_path / "a.jsonl").write_text(content)
    for path in (tmp_path / "a.jsonl", tmp_path):
        with pytest.raises(UserError, match=rf"a\.jsonl, line {line}: is empty; delete it$"):
            open_records(path)


@pytest.mark.parametrize("line", ['{"a": ', "[1]", "7", "\ud800"])
def test_a_damaged_line_is_named_when_it_is_read(tmp_path: Path, line: str):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line.encode(errors="surrogatepass") + b'\n{"a": 2}\n')
    source = open_records(path)
    assert source[0] == {"a": 1} and source[2] == {"a": 2}
    with pytest.raises(UserError, match=r"a\.jsonl, line 2: .*mend the line"):
        source[1]


def test_a_folder_has_the_files_of_a_split_in_order(tmp_path: Path):
    for i, part in enumerate((RECORDS[:10], RECORDS[10:20])):
        write_parquet(tmp_path / "data" / f"train-0000{i}-of-00002.parquet", part)
    write_jsonl(tmp_path / "data" / "dev.jsonl", RECORDS[20:23])
    write_arrow(tmp_path / "test" / "part.arrow", RECORDS[23:])
    write_jsonl(tmp_path / ".cache" / "train.jsonl", RECORDS)
    read = {
        split: [source[i] for i in range(len(source))]
        for split in ("train", "validation", "test")
        for source in [open_records(tmp_path, split)]
    }
    assert read == {
        "train": RECORDS[:20], "validation": RECORDS[20:23], "test": RECORDS[23:]
    }  # fmt: skip
    assert "00001-of-00002.parquet, row 1" in open_records(tmp_path).location(11)
    with pytest.raises(UserError, match=r"no .* file of the split 'other'"):
        open_records(tmp_path, "other")


def test_files_that_name_no_split_are_the_training_split(tmp_path: Path):
    write_jsonl(tmp_path / "untrained.jsonl", RECORDS[:2])
    write_jsonl(tmp_path / "more.jsonl", RECORDS[2:3])
    assert len(open_records(tmp_path)) == 3
    with pytest.raises(UserError, match="split 'test'"):
        open_records(tmp_path, "test")


def test_a_saved_dataset_has_its_files_in_the_order_of_its_state(tmp_path: Path):
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (RECORDS[:3], RECORDS[3:5])):
        write_arrow(tmp_path / "train" / name, part)
    files = [{"filename": name} for name in names[::-1]]
    (tmp_path / "train" / "state.json").write_text(json.dumps({"_data_files": files}))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    for folder in (tmp_path, tmp_path / "train"):
        source = open_records(folder)
        assert [source[i] for i in range(5)] == [*RECORDS[3:5], *RECORDS[:3]]


def test_a_parquet_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reads: list[int] = []
    read_row_group = parquet.ParquetFile.read_row_group

    def counted(self: Any, i: int) -> Any:
        reads.append(i)
        return read_row_group(self, i)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    source = open_records(write_parquet(tmp_path / "a.parquet", RECORDS))
    assert reads == []
    for i in [*range(25), *range(25)]:
        assert source[i] == RECORDS[i]
    assert reads == list(range(7)) and record_files.CACHED_ROW_GROUPS >= 7


def test_prepared_tensorflow_datasets_are_plain_records(tmp_path: Path):
    tfds = pytest.importorskip("tensorflow_datasets")

    class Tiny(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features = {
                "text": tfds.features.Text(),
                "seed": np.int64,
                "words": tfds.features.Sequence(tfds.features.Text()),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            for i in range(5):
                yield i, {"text": f"é{i}", "seed": i, "words": ["a"] * i}

    builder = Tiny(data_dir=str(tmp_path), file_format="array_record")
    builder.download_and_prepare()
    source = open_records(Path(builder.data_dir))
    assert [source[i] for i in (3, 0)] == [
        {"text": "é3", "seed": 3, "words": ["a"] * 3},
        {"text": "é0", "seed": 0, "words": []},
    ]
    assert source.location(3).endswith("example 3 of train")
    with pytest.raises(UserError, match="split 'other'"):
        open_records(Path(builder.data_dir), "other")


def test_what_cannot_be_read_is_one_clear_sentence(tmp_path: Path):
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "a.parquet").write_text("no")
    (tmp_path / "a.arrow").write_text("")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    for name, sentence in {
        "none.jsonl": "there is no file",
        "a.csv": "no known format",
        "a.parquet": "cannot be read",
        "a.arrow": "cannot be read",
        "empty.jsonl": "holds no record",
        "folder": "has no .jsonl",
    }.items():
        with pytest.raises(UserError, match=sentence):
            open_records(tmp_path / name)

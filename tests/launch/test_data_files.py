"""agentrl-data checks files, and converts them without losing a byte."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_records import FULL_RECORD, LOOK_UP, canonical_line
from support.commands import assert_one_clear_sentence, run

from agentrl_jax.configs import chat_file_sft
from agentrl_jax.errors import UserError
from agentrl_jax.launch.data_check import check_file
from agentrl_jax.launch.data_files import DataFile
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.storage import trajectory_log
from agentrl_jax.training.config import DemonstrationConfig
from agentrl_jax.training.demonstrations import open_source
from agentrl_jax.training.loop import train
from agentrl_jax.trajectories import Trajectory, Turn

SHORT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]}


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    spelled = json.dumps(SHORT, separators=(",", ":"))  # not the canonical form
    (tmp_path / "chats.jsonl").write_text(f"{canonical_line(FULL_RECORD)}\n{spelled}\n", "utf-8")
    return tmp_path / "chats.jsonl"


def convert(source: Path, out: Path, **options: Any) -> str:
    return DataFile(source=str(source), export=str(out), **options).run()


@pytest.mark.slow
def test_chats_that_were_imported_and_trained_on_come_back_byte_for_byte(tmp_path: Path):
    chats = Path(chat_file_sft.__file__).with_name("chat_file.jsonl")
    imported, exported = tmp_path / "chats.array_record", tmp_path / "again.jsonl"
    convert(chats, imported)
    experiment = chat_file_sft.get_config()
    experiment.demonstrations = DemonstrationConfig(path=str(imported))
    experiment.phases["sft"].steps = 3
    train(experiment, tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert len(losses) == 3 and losses[2] < losses[0]
    convert(imported, exported)
    assert exported.read_bytes() == chats.read_bytes() != b""


def test_a_check_counts_what_is_there(chats: Path, tmp_path: Path):
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    lines = check_file(chats, tokenizer_folder=str(tmp_path / "tokenizer")).splitlines()
    assert lines[0] == f"{chats}: 2 demonstrations, 0 of them wrong"
    assert lines[1] == "episodes 2: 1 with a reward that is not 0, 1 successful"
    assert lines[2] == "turns 3, messages 10, images 1"
    assert lines[3] == f"tools 1 ({LOOK_UP['function']['name']}), tool calls 2"
    texts = [m.get("content") for m in FULL_RECORD["messages"]]
    texts[3] = "How many live here?"
    calls = [call["function"] for call in FULL_RECORD["messages"][4]["tool_calls"]]
    texts += [text for call in calls for text in call.values()]
    full = sum(len(text.encode()) for text in texts if text)
    assert lines[4] == f"tokens {full + 3}, at most {full} in an episode"


def test_a_check_names_the_first_error_after_the_counts(
    chats: Path, capsys: pytest.CaptureFixture[str]
):
    with open(chats, "a") as file:
        file.write('{"messages": []}\n{}\n')
    with pytest.raises(UserError, match=r"line 3: there is no message of an assistant"):
        check_file(chats)
    assert f"{chats}: 4 demonstrations, 2 of them wrong\nepisodes 2" in capsys.readouterr().out


def test_a_check_of_pairs_and_tables_says_what_is_not_read(tmp_path: Path):
    record = {"prompt": "a", "chosen": "b", "rejected": "c", "score": 3, "id": 4}
    (tmp_path / "train.jsonl").write_text(json.dumps(record) + "\n")
    report = check_file(tmp_path)
    assert f"{tmp_path}: 1 preference pairs, 0 of them wrong\nepisodes 2" in report
    assert report.endswith("columns that are not read: score, id")


def test_chats_are_imported_and_exported_byte_for_byte(chats: Path, tmp_path: Path):
    assert "2 episodes in" in convert(chats, tmp_path / "own.array_record")
    assert "2 episodes in" in convert(tmp_path / "own.array_record", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == chats.read_bytes()
    convert(chats, tmp_path / "good.jsonl", successful_only=True)
    assert (tmp_path / "good.jsonl").read_text() == canonical_line(FULL_RECORD) + "\n"


def episode(text: str, reward: float, group: int, sample: int) -> Trajectory:
    turn = Turn((), assistant(text), (user("next"),), reward, terminated=True)
    return Trajectory(
        (user("go"),), (turn,), f"task#{group}", group, sample, seed=5, success=reward > 0
    )


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Two groups: returns 1, 0, 1 of three texts, and 1, 0 of one text."""
    log = tmp_path / "run" / "trajectories" / "0-000000.jsonl"
    log.parent.mkdir(parents=True)
    first = [
        episode(text, reward, 0, i) for i, (text, reward) in enumerate(zip("abc", (1.0, 0.0, 1.0)))
    ]
    trajectory_log.write(log, [*first, episode("a", 1.0, 1, 0), episode("a", 0.0, 1, 1)], 3, "rl")
    trajectory_log.write(log, [episode("d", 0.5, 0, 0)], 4, "rl")  # a group of another step
    return tmp_path / "run"


def test_the_episodes_of_a_run_become_chat_records(run_folder: Path, tmp_path: Path):
    assert "6 episodes in" in convert(run_folder, tmp_path / "chats.jsonl")
    records = [json.loads(line) for line in (tmp_path / "chats.jsonl").read_text().splitlines()]
    assert records[2] == {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "next"},
        ],
        "task": "task#0",
        "reward": 1.0,
        "success": True,
        "metadata": {
            "phase": "rl",
            "step": 3,
            "group": 0,
            "sample": 2,
            "seed": 5,
            "agent_index": 0,
        },
    }
    source = open_source(tmp_path / "chats.jsonl")
    assert [source[i].total_reward for i in range(6)] == [1, 0, 1, 1, 0, 0.5]
    convert(
        run_folder / "trajectories" / "0-000000.jsonl",
        tmp_path / "good.jsonl",
        successful_only=True,
    )
    assert len((tmp_path / "good.jsonl").read_text().splitlines()) == 4


def test_the_groups_of_a_run_become_pairs(run_folder: Path, tmp_path: Path):
    out = tmp_path / "pairs.jsonl"
    summary = convert(run_folder, out, pairs=True)
    assert summary == f"2 pairs in {out}, without 1 of equal conversations"
    records = [json.loads(line) for line in out.read_text().splitlines()]
    answers = [
        [r[x][0]["content"] for x in ("preferred_output", "non_preferred_output")] for r in records
    ]
    assert answers == [["a", "b"], ["c", "b"]] and records[0]["task"] == "task#0"
    assert "2 preference pairs, 0 of them wrong" in check_file(out)
    again = tmp_path / "again.jsonl"
    convert(out, again, pairs=True)
    assert again.read_bytes() == out.read_bytes()


def test_demonstrations_of_one_task_become_pairs(tmp_path: Path):
    records = [
        {"messages": [SHORT["messages"][0], {"role": "assistant", "content": text}], **fields}
        for text, fields in (("x", {"task": "t", "reward": 1}), ("y", {"task": "t"}), ("z", {}))
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert "1 pairs in" in convert(tmp_path / "chats.jsonl", tmp_path / "pairs.jsonl", pairs=True)
    with pytest.raises(UserError, match="holds no two episodes of one group"):
        (tmp_path / "chats.jsonl").write_text(json.dumps(records[2]))
        convert(tmp_path / "chats.jsonl", tmp_path / "pairs.jsonl", pairs=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"export": "a.jsonl"}, "a conversion needs --source"),
        ({"source": "a.jsonl"}, "a conversion needs --source"),
        ({"source": "a.jsonl", "export": "a.csv"}, "name a .jsonl file"),
        ({"source": "a.jsonl", "export": "a.array_record", "pairs": True}, "name a .jsonl file"),
        ({"source": "a", "export": "a.jsonl", "pairs": True, "successful_only": True}, "leave one"),
        ({"source": "nothing.jsonl", "export": "a.jsonl"}, "there is no file nothing.jsonl"),
        ({"check": "nothing"}, "there is no demonstration file nothing"),
    ],
)
def test_flags_that_do_not_fit_are_reported(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        DataFile(**options).run()


@pytest.mark.slow
def test_the_command_prints_the_counts_and_one_error(chats: Path):
    done = run("data", f"--check={chats}")
    assert done.returncode == 0 and "2 demonstrations, 0 of them wrong" in done.stdout
    chats.write_text('{"messages": 3}\n')
    done = run("data", f"--check={chats}")
    assert_one_clear_sentence(done, "chats.jsonl, line 1, messages: must be a list, not a number")
    assert "1 of them wrong" in done.stdout

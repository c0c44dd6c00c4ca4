"""Run folders for the viewer: agents with tools and images, hostile contents, 100,000 episodes.

    python tests/support/viewer_runs.py FOLDER [EPISODES]

writes runs of the record's form with times, training numbers and a tokenizer.
"""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from agentrl_jax.messages import ImagePart, Message, TextPart, ToolCall, user
from agentrl_jax.storage.trajectory_json import encode
from agentrl_jax.trajectories import Call, Sampling, Trajectory, Turn
from agentrl_jax.viewer.episode_summary import number

PLACES = ("the harbour", "the old library", "the market hall", "the museum of clocks")
EPOCH = 1_764_000_000.0
HOSTILE = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>",
    '</script><script>window.broken = 3</script>" onmouseover="window.broken = 4',
    "\u202etxet desrever\u202c \u2028\u2029 \u0000 \ud800 \u200b a\u0301\u0301\u0301",
    "javascript:window.broken = 5",
    "{{constructor.constructor('window.broken = 6')()}} ${window.broken = 7}",
)


def opening(place: str) -> tuple[Message, ...]:
    rules = "You answer questions of visitors. Look a place up before you answer."
    return Message("system", rules), user(f"When does {place} open on Sunday, and what is there?")


def lookup_action(place: str, number: int) -> Message:
    arguments = json.dumps({"place": place, "day": "Sunday"})
    thought = f"I look up {place} first."
    text = f'{thought}\n<tool_call>\n{{"name": "look_up", "arguments": {arguments}}}\n</tool_call>'
    call = ToolCall(f"call_{number}_0", "look_up", arguments)
    return Message("assistant", thought, (call,), raw_text=text)


def answer_action(place: str, correct: bool) -> Message:
    hour = "ten" if correct else "noon"
    return Message("assistant", f"On Sunday {place} opens at {hour}.")


def picture(size: int = 24) -> str:
    """A PNG of two colors as a data: URL."""
    rows = b"".join(
        b"\0"
        + bytes(
            c for x in range(size) for c in ((70, 130, 180) if (x + y) % 8 < 4 else (250, 240, 200))
        )
        for y in range(size)
    )
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def make_tokenizer() -> Tokenizer:
    """Byte-pair encoding of the texts above."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [
        m.full_text
        for p in PLACES
        for m in (*opening(p), lookup_action(p, 0), answer_action(p, True))
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<pad>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class RunWriter:
    """Makes trajectories of one run as JSON data; equal seeds make equal runs."""

    def __init__(self, seed: int = 0, slots: int = 6, alternatives: bool = True) -> None:
        self.alternatives = alternatives
        self.random = np.random.default_rng(seed)
        self.tokenizer = make_tokenizer()
        self.free = np.full(slots, EPOCH)

    def ids(self, text: str) -> np.ndarray:
        safe = text.encode("utf-8", "replace").decode()
        return np.asarray(self.tokenizer.encode(safe).ids, np.int32)

    def call(self, prompt: np.ndarray, text: str, parent: Call | None, step: int) -> Call:
        action = np.append(self.ids(text), 1).astype(np.int32)
        entropy = self.random.gamma(1.0, 0.5, len(action)).astype(np.float32)
        alternatives = np.stack([action, self.random.integers(2, 400, len(action))], 1)
        logp = (-self.random.gamma(0.6, 0.7, len(action))).astype(np.float32)
        return Call(
            prompt=prompt if parent is None else np.concatenate([parent.ids, prompt]),
            action=action,
            sampler_logp=logp,
            version=np.full(len(action), step, np.int32),
            sampling=Sampling(stop_ids=(1,)),
            finish_reason="stop",
            key=(0, step, 0),
            entropy=entropy,
            alternatives=alternatives.astype(np.int32) if self.alternatives else None,
            alternative_logp=np.stack([logp, logp - 1], 1) if self.alternatives else None,
            parent=parent,
        )

    def trajectory(self, step: int, group: int, sample: int) -> Trajectory:
        """Looks up once or twice, then answers, rightly more often in later steps."""
        place = PLACES[group % len(PLACES)]
        correct = bool(self.random.random() < 0.3 + 0.1 * step)
        lookups = int(self.random.integers(1, 3))
        messages = opening(place)
        added, parent, turns = "\n".join(m.text for m in messages), None, []
        for i in range(lookups + 1):
            last = i == lookups
            action = answer_action(place, correct) if last else lookup_action(place, i)
            parent = self.call(self.ids(added), action.full_text, parent, step)
            observation = () if last else self.observation(action.tool_calls[0], place)
            added = "".join(m.text for m in observation)
            parts = {"correct": float(correct), "length": -0.1} if last else {"length": -0.1}
            turns.append(
                Turn((parent,), action, observation, sum(parts.values()), parts, terminated=last)
            )
        return Trajectory(
            messages, tuple(turns), f"agentrl/Visitors-v0#{group}", group, sample,
            seed=1000 + group, success=correct,
            tools=({"type": "function", "function": {"name": "look_up", "parameters": {}}},),
        )  # fmt: skip

    def observation(self, call: ToolCall, place: str) -> tuple[Message, ...]:
        text = TextPart(f"{place}: Sunday from ten to five. A picture of its tiles:")
        return (Message("tool", (text, ImagePart(picture())), tool_call_id=call.id),)

    def line(self, trajectory: Trajectory, step: int, phase: str = "rl") -> dict[str, Any]:
        """The JSON data of a line, with times and training numbers."""
        data = {"schema": 2, "phase": phase, "step": step, **encode(trajectory)}
        slot = int(np.argmin(self.free))
        clock = float(self.free[slot])
        submitted = clock - float(self.random.gamma(1.0, 0.05))
        baseline = 0.4 + 0.1 * step
        for turn in data["turns"]:
            for call in turn["calls"]:
                tokens = len(call["action"])
                prefilled = clock + 0.03
                finished = prefilled + 0.01 * tokens
                call["time"] = {
                    "submitted": submitted, "admitted": clock, "prefilled": prefilled,
                    "finished": finished, "slot": slot,
                }  # fmt: skip
                call["training"] = self.training(call, number(data["return"]) - baseline)
                clock = finished
            end = clock + float(self.random.gamma(2.0, 0.1))
            turn["time"] = {"environment": [clock, end]}
            turn["training"] = {"reward": turn["reward"], "rewards": turn["rewards"]}
            submitted = clock = end
        self.free[slot] = clock
        return data

    def training(self, call: dict[str, Any], advantage: float) -> dict[str, Any]:
        sampler_logp = np.asarray(call["sampler_logp"])
        tokens = len(sampler_logp)
        logp = sampler_logp + self.random.normal(0, 0.08, tokens)
        value = np.linspace(0.2, 0.5, tokens) + self.random.normal(0, 0.03, tokens)
        weight = np.full(tokens, 1 / 512)
        weight[self.random.random(tokens) < 0.1] = 0
        return {
            "weight": weight.tolist(),
            "advantage": (advantage + self.random.normal(0, 0.1, tokens)).round(6).tolist(),
            "logp": logp.round(6).tolist(),
            "value": value.round(6).tolist(),
            "value_target": (value + 0.1).round(6).tolist(),
        }

    def lines(self, steps: int, groups: int, group_size: int) -> Iterator[dict[str, Any]]:
        for step in range(steps):
            for group in range(groups):
                for sample in range(group_size):
                    yield self.line(self.trajectory(step, group, sample), step)


def write_segment(folder: Path, name: str, lines: Sequence[dict[str, Any]]) -> Path:
    path = folder / "trajectories" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
    return path


def write_rest(folder: Path, writer: RunWriter, steps: int) -> None:
    """Config, metrics, summary and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer").mkdir(exist_ok=True)
    writer.tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    config = {"class": "m:Experiment", "fields": {"name": folder.name, "lr": 1e-3, "steps": steps}}
    (folder / "config.json").write_text(json.dumps(config))
    table = [{"name": "policy", "mean_return": 0.7, "win_rate": 0.8}]
    (folder / "summary.json").write_text(json.dumps({"seed": 0, "table": table}))
    rows = [
        {
            "phase": "rl", "step": i, "time/seconds": 2.0 + float(writer.random.random()),
            "rollout/return": 1 - float(np.exp(-i / 20)) + float(writer.random.normal(0, 0.05)),
            "entropy": 2 * float(np.exp(-i / 40)), "loss": float(writer.random.normal()),
            "nonfinite": None,
        }
        for i in range(20 * steps)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_run(
    folder: Path, steps: int = 2, groups: int = 2, group_size: int = 2, seed: int = 0
) -> Path:
    """A run of well-formed episodes in one segment."""
    writer = RunWriter(seed)
    write_segment(folder, "0-000000", list(writer.lines(steps, groups, group_size)))
    write_rest(folder, writer, steps)
    return folder


def hostile_line(writer: RunWriter, text: str) -> dict[str, Any]:
    """A trajectory whose every text is `text`, of all roles, in names and in keys."""
    call = ToolCall(text, text, text, error=text)
    prompt = writer.call(writer.ids("prompt"), text, None, 0)
    images = (TextPart(text), ImagePart(text), ImagePart("https://example.invalid/x.png"))
    turn = Turn(
        (prompt,), Message("assistant", text, (call,), raw_text=text),
        (Message("tool", images, tool_call_id=text), user(text)), float("nan"),
        {text: float("inf")}, info={text: text, "nan": float("nan")},
    )  # fmt: skip
    trajectory = Trajectory(
        (Message("system", text), user(text)), (turn,), text, stop_reason="error", error=text
    )
    return {**writer.line(trajectory, 0, phase="rl"), "unknown_key": text}


def write_hostile_run(folder: Path) -> Path:
    """Texts that try to become code, a long message, damaged lines, a truncated last line."""
    writer = RunWriter()
    lines = [hostile_line(writer, text) for text in HOSTILE]
    lines[0]["opening"].append({"role": "user", "content": "long " * 200_000})
    good = list(writer.lines(1, 1, 2))
    path = write_segment(folder, "0-000000", [*lines, *good])
    damaged = (
        '{"schema": 2, "turns": [{"calls"\n', "[]\n", '{"schema": 1, "turns": []}\n', "\n",
        '{"schema": 2, "turns": "none"}\n', "[" * 5000 + "\n", '{"schema": 2, "turns": [1]}\n',
    )  # fmt: skip
    odd = {**good[0], "return": 1e999, "step": "x", "group": None, "task": ["a"], "success": 3}
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(damaged) + json.dumps(odd) + "\n" + json.dumps(good[1]) + "\n")
        file.write(json.dumps(good[0])[:500])  # is being written
    write_rest(folder, writer, 1)
    return folder


def large_head(i: int, group_size: int) -> str:
    task = f"agentrl/Visitors-v0#{i // group_size}"
    return (
        f'{{"schema": 2, "phase": "rl", "step": {i // 512}, "task": "{task}", '
        f'"group": {i // group_size % 64}, "sample": {i % group_size}, "seat"'
    )


def write_large_run(folder: Path, episodes: int, group_size: int = 8) -> Path:
    """Many episodes in segments of 10,000; 200 different ones come again under other numbers."""
    writer = RunWriter(alternatives=False)
    pool = [json.dumps(line).partition('"seat"')[2] for line in writer.lines(5, 10, 4)]
    (folder / "trajectories").mkdir(parents=True, exist_ok=True)
    for part, start in enumerate(range(0, episodes, 10_000)):
        with open(folder / "trajectories" / f"0-{part:06d}.jsonl", "w", encoding="ascii") as file:
            for i in range(start, min(start + 10_000, episodes)):
                file.write(large_head(i, group_size) + pool[i * 7 % len(pool)] + "\n")
    write_rest(folder, writer, episodes // 512)
    return folder


def main(argv: Sequence[str]) -> None:
    folder = Path(argv[1])
    write_run(folder / "first", 6, 4, 4)
    write_run(folder / "second", 4, 4, 4, seed=1)
    write_hostile_run(folder / "hostile")
    if len(argv) > 2:
        write_large_run(folder / "large", int(argv[2]))


if __name__ == "__main__":
    main(sys.argv)

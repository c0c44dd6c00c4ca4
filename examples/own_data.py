"""Fine-tune on a file of chats, and write it again: python examples/own_data.py [STEPS] [SEED]

The chats are in OpenAI's form, with tools, calls of them and an image. They are imported into a
file of this package, fine-tuned on without any environment, and exported: no byte differs.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

from agentrl_jax import DemonstrationConfig, train
from agentrl_jax.configs import chat_file_sft
from agentrl_jax.launch.data_files import DataFile

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def make_chat(rng: random.Random) -> dict[str, Any]:
    """A sum that the assistant leaves to a tool."""
    a, b = rng.randrange(50), rng.randrange(50)
    function = {"name": "add", "arguments": json.dumps({"a": a, "b": b})}
    call = {"id": f"call_{a}", "type": "function", "function": function}
    question = [{"type": "text", "text": f"{a} + {b} – as on the slate?"}, PICTURE]
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": str(a + b), "tool_call_id": call["id"]},
        {"role": "assistant", "content": f"{a + b}."},
    ]
    return {"messages": messages, "tools": [ADD], "reward": 1.0, "success": True}


def write_chats(path: Path, seed: int, count: int = 64) -> None:
    rng = random.Random(seed)
    lines = [json.dumps(make_chat(rng), ensure_ascii=False) + "\n" for _ in range(count)]
    path.write_text("".join(lines), "utf-8")


def main(steps: int = 60, seed: int = 0) -> None:
    folder = Path("runs") / f"own_data_{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    chats, imported, again = (
        folder / x for x in ("chats.jsonl", "chats.array_record", "again.jsonl")
    )
    write_chats(chats, seed)
    print(DataFile(check=str(chats)).run())
    print(DataFile(source=str(chats), export=str(imported)).run())
    experiment = chat_file_sft.get_config()
    experiment.demonstrations, experiment.seed = DemonstrationConfig(path=str(imported)), seed
    experiment.phases["sft"].steps = steps
    train(experiment, folder / "run")
    print(DataFile(source=str(imported), export=str(again)).run())
    print(f"byte-equal: {again.read_bytes() == chats.read_bytes()}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

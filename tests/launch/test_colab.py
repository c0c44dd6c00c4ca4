"""The notebooks run from top to bottom in a kernel, with tiny settings, and are stored without
outputs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from support.launching import ROOT

from agentrl_jax.models import save
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import byte_tokenizer

NOTEBOOKS = sorted((ROOT / "launch/colab").glob("*.ipynb"))
TINY = {
    "quickstart": """
from agentrl_jax.training.sources import Demonstrations, Rollouts
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.rollout.strategy import IndependentEpisodes

experiment.policy = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)
experiment.demonstrations.episodes, experiment.evaluation.episodes = 200, 8
experiment.environment.workers = 1
experiment.environment.options["words"] = 4
experiment.phases["sft"].source = Demonstrations(16)
experiment.phases["rl"].source = Rollouts(2, IndependentEpisodes(2))
experiment.phases["sft"].steps, experiment.phases["rl"].steps, experiment.engine.rows = 4, 2, 8
""",
    "your_own": """
model = "model"
policy = LoraConfig(PretrainedDecoder(model), rank=2, alpha=4.0)
steps, tasks, group_size, episodes, length = 2, 2, 2, 4, 256
""",
}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_there_is_a_tiny_size_for_each_notebook():
    assert [path.stem for path in NOTEBOOKS] == sorted(TINY)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_installs_first(path: Path):
    notebook = read(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert (
        path.read_text(encoding="utf-8")
        == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    )
    assert 'find_spec("agentrl_jax") is None' in source(code[0]) and "%pip install" in source(
        code[0]
    )
    assert sum("parameters" in cell["metadata"].get("tags", ()) for cell in code) == 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("wheel", "address", "gpu", "expected"),
    [
        (True, "", False, "agentrl_jax-0.1.0-py3-none-any.whl[report]"),
        (True, "git+https://host/one", True, "agentrl_jax-0.1.0-py3-none-any.whl[report,cuda]"),
        (False, "git+https://host/one", False, "agentrl_jax[report] @ git+https://host/one"),
        (False, "git+https://host/one", True, "agentrl_jax[report,cuda] @ git+https://host/one"),
        (False, "", False, "upload the wheel"),
    ],
)
def test_the_first_cell_installs_the_extras_of_the_machine(
    path: Path,
    wheel: bool,
    address: str,
    gpu: bool,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi" if gpu else None)
    monkeypatch.setenv("AGENTRL_SOURCE", address)
    if wheel:
        Path("agentrl_jax-0.1.0-py3-none-any.whl").touch()
    cell = next(source(cell) for cell in read(path)["cells"] if cell["cell_type"] == "code")
    requirements: list[str] = []
    plain = cell.replace(
        '%pip install --quiet "{requirement}"', "told.append(requirement)"
    ).replace("%matplotlib inline", "")
    try:
        exec(plain, {"told": requirements})
    except AssertionError as error:
        requirements.append(str(error))
    assert len(requirements) == 1 and (
        requirements[0] == expected
        or (expected == "upload the wheel" and requirements[0].startswith(expected))
    )


def make_model(folder: Path) -> None:
    """A tiny chat model."""
    config = DecoderConfig(
        layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8, max_positions=256
    )
    policy, tokenizer = config.build(272), byte_tokenizer(chat=True)
    save(folder, policy, policy.init(jax.random.key(3)))
    tokenizer.save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nbformat = pytest.importorskip(
        "nbformat", reason="nbclient is not installed: pip install nbclient ipykernel"
    )
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient is not installed: pip install nbclient ipykernel"
    )
    pytest.importorskip(
        "ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel"
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT), *(folder for folder in sys.path if folder)])
    )
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # one device, as in Colab
    make_model(tmp_path / "model")
    notebook = nbformat.read(path, as_version=4)
    at = next(
        i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())
    )
    notebook.cells.insert(at + 1, nbformat.v4.new_code_cell(TINY[path.stem]))
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    printed = {
        name: "".join(o.get("text", "") + str(o.get("data", {})) for o in cell)
        for name, cell in outputs.items()
    }
    assert all(output.output_type != "error" for cell in outputs.values() for output in cell)
    assert "GRPO" in printed["train"] and "random" in printed["train"]
    assert any("image/png" in output.get("data", {}) for output in outputs["curves"])
    if path.stem == "quickstart":
        assert "--- policy" in printed["watch"] and "won after" in printed["watch"]
    else:
        assert "| 4 -> " in printed["try"] and "model.safetensors" in printed["save"]
        assert {file.name for file in (tmp_path / "runs/guess/merged").iterdir()} >= {
            "config.json",
            "tokenizer.json",
            "model.safetensors",
        }

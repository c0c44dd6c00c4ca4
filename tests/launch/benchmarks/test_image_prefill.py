"""`agentrl-bench images` and `image_update`: reports at a tiny size, and errors for wrong flags."""

import json
from pathlib import Path

import pytest
from support.vision_policies import VOCAB_SIZE, vision_config

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks import image_prefill, image_update
from agentrl_jax.launch.benchmarks.image_prefill import ImagePrefill, fit_line


def test_tokens_images_and_the_line_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(image_prefill, "SMALL", vision_config("Qwen3-VL"))
    monkeypatch.setattr(image_prefill, "SMALL_VOCAB", VOCAB_SIZE)
    page = tmp_path / "page.md"
    page.write_text("<!-- image-prefill -->\nold\n<!-- /image-prefill -->\n")
    bench = ImagePrefill(pixels=16, text=3, chunk=4, images=("3", "1", "2"), repeats=1)
    bench.page = str(page)
    report = json.loads(json.dumps(bench.run()))
    # 16 pixels a side are 2 x 2 tokens of 8 x 8 pixels; 3 of text come before and 1 after.
    assert [report["seconds"][n]["tokens"] for n in ("1", "2", "3")] == [8, 12, 16]
    assert report["compilations"] == 0
    assert min(report["seconds"]["3"][name] for name in ("uncached", "cached")) > 0
    table = page.read_text()
    assert "| 3 | 16 | " in table and "ms an image (cached" in table and "old" not in table
    assert "| 1 | 8 | " in capsys.readouterr().out


def test_the_line_is_that_of_least_squares():
    exact = fit_line([1, 2, 4], [1.5, 2.5, 4.5])
    assert exact.start == pytest.approx(0.5) and exact.slope == pytest.approx(1.0)
    assert exact.deviation == pytest.approx(0.0, abs=1e-9)
    # through (1, 1), (2, 3), (3, 2): 1 + x / 2, which is off by 1/2, 1 and 1/2
    bent = fit_line([1, 2, 3], [1.0, 3.0, 2.0])
    assert bent.start == pytest.approx(1.0) and bent.slope == pytest.approx(0.5)
    assert bent.deviation == pytest.approx(1 / 3, rel=1e-4)


def test_wrong_flags_are_refused():
    with pytest.raises(UserError, match="numbers above 0, not 1, none"):
        ImagePrefill(images=("1", "none")).prepare()
    with pytest.raises(UserError, match="has no vision tower"):
        ImagePrefill(preset="gemma3_4b").run()


@pytest.mark.slow
def test_both_sides_of_an_update_are_timed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image_update, "SMALL", vision_config("Qwen3-VL"))
    monkeypatch.setattr(image_update, "SMALL_VOCAB", VOCAB_SIZE)
    bench = image_update.ImageUpdate(
        groups=1, group=2, images=1, pixels=16, text=3, microbatch=2, repeats=1
    )
    report = json.loads(json.dumps(bench.run()))
    assert report["compilations"] == 0
    assert all(min(times) > 0 for times in report["seconds"].values())

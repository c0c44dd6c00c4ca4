"""A cloud in a folder, for the tests of launchers."""

from pathlib import Path

import pytest
from launching import Cloud


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    here = Cloud(tmp_path / "cloud")
    monkeypatch.setenv("CLOUD", str(here.folder))
    monkeypatch.setenv("PATH", here.path)
    return here

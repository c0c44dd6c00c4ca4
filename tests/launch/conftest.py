"""The fake cloud, for the tests of launchers."""

from pathlib import Path

import pytest
from support.launching import FakeCloud


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCloud:
    fake_cloud = FakeCloud(tmp_path / "cloud")
    monkeypatch.setenv("CLOUD", str(fake_cloud.folder))
    monkeypatch.setenv("PATH", fake_cloud.path)
    return fake_cloud

"""The page in a browser: keys, screen reader, hostile texts, an exported file.

The tests themselves are viewer/tests/browser/; they need Debian's chromium, Node.js, and
`npm ci` in viewer/.
"""

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from support.viewer_runs import write_hostile_run, write_large_run, write_run

from agentrl_jax.viewer.export import export_page
from agentrl_jax.viewer.run_view import RunView
from agentrl_jax.viewer.server import ViewerServer

SOURCES = Path(__file__).parents[2] / "viewer"
CHROMIUM = shutil.which("chromium")
MISSING = [
    name
    for name, available in (
        ("chromium", CHROMIUM),
        ("node", shutil.which("node")),
        ("viewer/node_modules (npm ci)", (SOURCES / "node_modules").exists()),
    )
    if not available
]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"the page's browser tests need {', '.join(MISSING)}")
def test_the_page_in_a_browser(tmp_path: Path):
    run = RunView(write_run(tmp_path / "run", steps=2, groups=3, group_size=4))
    run.refresh()
    export_page([run], tmp_path / "page.html", episodes=6)
    hostile = RunView(write_hostile_run(tmp_path / "hostile"))
    large = RunView(write_large_run(tmp_path / "large", 3000))
    with ViewerServer([run, hostile, large]) as server:
        threading.Thread(target=server.serve_forever).start()
        environment = {
            "VIEWER_URL": f"http://127.0.0.1:{server.server_port}/",
            "VIEWER_FILE": str(tmp_path / "page.html"),
            "CHROMIUM": str(CHROMIUM),
        }
        done = subprocess.run(
            ["npm", "run", "browser"],
            cwd=SOURCES,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        server.shutdown()
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]

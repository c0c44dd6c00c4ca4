"""How fast `agentrl-view` lists a run of many episodes, and how much memory it takes.

PYTHONPATH=tests python benchmarks/studies/viewer_speed.py [EPISODES]
"""

import json
import resource
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from support.viewer_runs import write_large_run

from agentrl_jax.viewer.run_view import RunView
from agentrl_jax.viewer.server import ViewerServer


def ask(server: ViewerServer, path: str) -> tuple[Any, float]:
    """(the answer, seconds)"""
    start = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/api/{path}") as response:
        return json.load(response), time.perf_counter() - start


def first_list(server: ViewerServer) -> None:
    while not ask(server, "episodes")[0]["rows"]:
        time.sleep(0.01)


def all_episodes(server: ViewerServer, count: int) -> None:
    while ask(server, "runs")[0]["runs"][0]["episodes"] < count:
        time.sleep(0.1)


PATHS = (
    "episodes",
    "episodes?sort=total_reward&text=v0%2377",
    "episode?id=0-000000/7",
    "timeline?phase=rl&step=3",
    "runs",
)


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = write_large_run(Path(folder) / "run", count)
        size = sum(path.stat().st_size for path in run_dir.glob("trajectories/*"))
        print(f"{count:,} episodes, {size / 1e6:,.0f} MB")
        start, cpu = time.perf_counter(), time.process_time()
        with ViewerServer([RunView(run_dir)]) as server:
            threading.Thread(target=server.serve_forever).start()
            first_list(server)
            print(f"first list: {time.perf_counter() - start:.2f} s")
            all_episodes(server, count)
            seconds, used = time.perf_counter() - start, time.process_time() - cpu
            print(f"all indexed: {seconds:.1f} s, {used:.1f} s of CPU")
            for path in PATHS:
                ask(server, path)
                print(f"/api/{path}: {1000 * min(ask(server, path)[1] for _ in range(5)):.0f} ms")
            server.shutdown()
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

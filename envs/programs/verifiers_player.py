"""An agent program that plays tasksets of the package verifiers (0.4) against the capture endpoint.

    INTERPRETER -I verifiers_player.py TASKSET [--path=FOLDER] [--tasks=1000] [--concurrent=8]

It runs as a pool's program (`CapturedEpisodes(command, pool_size=1)`) in an interpreter that has
verifiers, and imports nothing else that is not of the standard library; `-I` keeps the packages of
the run's interpreter, which PYTHONPATH names, out of it. The seed of an episode
chooses its task. Named rewards of the taskset are posted, each times its weight. Everything runs in
subprocesses of this machine: the package's own defaults, hosted sandboxes and a hosted model, are
never used.
"""

import argparse
import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# For configs: this file, which another interpreter runs.
PATH = str(Path(__file__).resolve())


def post(url: str, key: str, body: Mapping[str, Any] | None = None) -> Any:
    """The JSON that the endpoint answers; None where there is none."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = json.dumps(body or {}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as reply:
        text = reply.read()
    return json.loads(text) if text else None


def load(taskset: str, harness: str) -> Any:
    """The environment of a taskset, its one agent in a subprocess of this machine."""
    from verifiers.v1.configs.agent import agent_config_fields  # type: ignore[import-not-found]
    from verifiers.v1.utils.loaders import (  # type: ignore[import-not-found]
        env_config_type,
        load_environment,
        resolve_env_config,
    )

    agents = agent_config_fields(env_config_type(taskset)())
    if len(agents) != 1:
        raise SystemExit(
            f"{taskset} has the agents {', '.join(agents)}: a trajectory has one reward, so only "
            "tasksets of one agent can be trained on"
        )
    local = {"runtime": {"type": "subprocess"}, "harness": {"id": harness}}
    config = {"taskset": {"id": taskset}, **dict.fromkeys(agents, local)}
    return load_environment(resolve_env_config(config))


class Player:
    """Plays episodes of one environment."""

    def __init__(self, env: Any, max_tasks: int) -> None:
        self._env, self._max_tasks = env, max_tasks
        self._stream, self._tasks = iter(env.taskset), []

    def task(self, seed: int) -> Any:
        """The task of a seed: its remainder in the first `max_tasks`, or in all where fewer."""
        index = seed % self._max_tasks
        while len(self._tasks) <= index:
            task = next(self._stream, None)
            if task is None:
                break
            self._tasks.append(task)
        return self._tasks[index % len(self._tasks)]

    async def play(self, episode: Mapping[str, Any], variable: str) -> None:
        """Play an episode and post its rewards; one that failed is ended without any.

        Args:
            episode: what the endpoint answers to a request for one.
            variable: the environment variable from which the package reads the episode's key.
        """
        from verifiers.v1.clients import (  # type: ignore[import-not-found]
            EvalClientConfig,
            ModelContext,
        )
        from verifiers.v1.types import SamplingConfig  # type: ignore[import-not-found]

        url, key = str(episode["url"]), str(episode["api_key"])
        os.environ[variable] = key
        client = EvalClientConfig(base_url=f"{url}/v1", api_key_var=variable)
        context = ModelContext(model="player", client=client, sampling=SamplingConfig())
        result = await self._env.run_episode(self.task(int(episode["seed"])), context)
        traces = result.traces
        rewards = traces[0].rewards if len(traces) == 1 else {}
        if result.errors or not rewards or None in rewards.values():
            await asyncio.to_thread(post, f"{url}/end", key)
            return
        parts = {name: reward.score * reward.weight for name, reward in rewards.items()}
        success = sum(parts.values()) >= sum(reward.weight for reward in rewards.values()) - 1e-6
        body = {"rewards": parts, "success": success, "final": True}
        await asyncio.to_thread(post, f"{url}/reward", key, body)


async def run_pool(arguments: argparse.Namespace) -> None:
    """Episodes from the endpoint, until it is gone."""
    url, key = os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"]
    env = load(arguments.taskset, arguments.harness)
    player = Player(env, arguments.tasks)

    async def play_repeatedly(variable: str) -> None:
        while True:
            episode = await asyncio.to_thread(post, f"{url}/episodes", key)
            if episode is not None:
                await player.play(episode, variable)

    async with env.serving():
        names = [f"AGENTRL_EPISODE_KEY_{i}" for i in range(arguments.concurrent)]
        await asyncio.gather(*map(play_repeatedly, names))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plays a taskset of verifiers.")
    parser.add_argument("taskset", help="its id: a module of the package or an installed one")
    parser.add_argument("--harness", default="null", help="the package's agent program")
    parser.add_argument("--tasks", type=int, default=1000, help="seeds are modulo this number")
    parser.add_argument("--concurrent", type=int, default=8, help="episodes at a time")
    parser.add_argument("--path", default="", help="a folder with tasksets that are not installed")
    settings = parser.parse_args()
    os.environ["PYTHONPATH"] = settings.path  # of the programs that the package starts
    sys.path += [settings.path] if settings.path else []
    asyncio.run(run_pool(settings))

"""What guesses from the prompt gain: a run's policy plays the same episodes with and without them.

    python benchmarks/studies/prompt_lookup.py runs/search-r1 --guesses=0,3,7 --repeats=3

The numbers of guesses alternate. A line of JSON for each: the median seconds of a rollout, sampled
tokens, and tokens a step: what a rollout gains where a step takes as long with guesses as without,
as where it waits for the weights to be read. The exit status is 1 unless all sample the same
tokens.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax.environment import make
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.launch.garbage_collection import collect_seldom
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.builders import load_policy, make_agent, make_runtime
from agentrl_jax.trajectories import Call


def num_steps(call: Call, guesses: int) -> int:
    """The steps in which a call is sampled."""
    tokens = np.concatenate([call.prompt, call.action])
    steps, end = 0, len(call.prompt)
    while end < len(tokens):
        is_place = (tokens[1 : end - 1] == tokens[end - 1]) & (tokens[: end - 2] == tokens[end - 2])
        places = np.flatnonzero(is_place) + 1
        guessed = tokens[places[-1] + 1 : end][:guesses] if len(places) else tokens[:0]
        right = tokens[end:][: len(guessed)] == guessed[: len(tokens) - end]
        steps, end = steps + 1, end + 1 + int(np.cumprod(right).sum())
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--phase", default=None)
    parser.add_argument("--guesses", default="0,3")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=0, help="of the engine; 0: the run's")
    flags = parser.parse_args()
    numbers = [int(number) for number in flags.guesses.split(",")]
    experiment, tokenizer, policy, params = load_policy(flags.run_dir, flags.phase)
    environment = experiment.environment
    context = make(environment.name, environment.options).context
    agent = make_agent(experiment, tokenizer, context)
    tasks = environment.fixed_tasks(flags.episodes, 10**9, environment)
    config = replace(experiment.engine, rows=flags.rows or experiment.engine.rows)
    engines = {
        str(number): LocalEngine(policy, replace(config, guesses=number), params)
        for number in numbers
    }
    agents = {name: replace(agent, engine=name) for name in engines}
    collect_seldom()
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    sampled: dict[str, list[list[int]]] = {}
    calls: list[Call] = []
    with make_runtime(environment, engines, agents) as runtime:
        for repeat in range(1 + flags.repeats):  # the first warms up
            for name in engines:
                start = time.perf_counter()
                groups = runtime.collect(IndependentEpisodes(1, name), tasks, (0, 0))
                if repeat:
                    seconds[name].append(time.perf_counter() - start)
                calls = [x for group in groups for t in group.trajectories for x in t.calls]
                sampled[name] = [call.action.tolist() for call in calls]
    total = sum(len(call.action) for call in calls)
    for number in numbers:
        report = {
            "guesses": number,
            "seconds": round(statistics.median(seconds[str(number)]), 3),
            "sampled_tokens": total,
            "tokens_per_step": round(total / sum(num_steps(call, number) for call in calls), 3),
        }
        print(json.dumps(report))
    sys.exit(any(actions != sampled[str(numbers[0])] for actions in sampled.values()))


if __name__ == "__main__":
    main()

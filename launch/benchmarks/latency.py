"""`latency`: slow environments, against a lock-step loop that samples the same tokens."""

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.benchmarks.synthetic_envs import DelayedInlinePool, parse_delays
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Call, Turn
from agentrl_jax.workers.pool import EnvHandle, Task

EpisodeActions = list[list[list[int]]]  # token ids of each episode's turns


@dataclass(frozen=True)
class PlayResult:
    """The cost of all episodes in one mode."""

    seconds: float
    sampled_tokens: int
    prefill_tokens: int
    busy_seconds: float
    steady_rate: float  # tokens per second while further episodes were waiting to begin
    actions: EpisodeActions

    def report(self) -> dict[str, Any]:
        return {
            "seconds": round_significant(self.seconds),
            "tokens_per_second": round_significant(self.sampled_tokens / self.seconds),
            "steady_tokens_per_second": round_significant(self.steady_rate),
            "sampled_tokens": self.sampled_tokens,
            "prefill_tokens": self.prefill_tokens,
            "device_busy": round_significant(self.busy_seconds / self.seconds),
        }


@dataclass
class Latency(EngineSetup, ModelShape):
    """Delays are multiples of the decode time of one turn of all rows, which is measured first."""

    rows: int = option(8, "Calls decoded at once.", 1)
    num_slots: int = option(
        64,
        "Episodes at once; those beyond the rows are parked while they wait for environments.",
        1,
    )
    episodes: int = option(0, "Episodes of each measurement; 0: six times the slots.", 0)
    turns: int = option(3, "Turns of an episode.", 1)
    prompt: int = option(16, "Tokens before the first turn.", 2)
    new: int = option(16, "Tokens sampled per turn.", 1)
    observation: int = option(8, "Tokens between two turns.", 1)
    delays: str = option("1,5,20", "Mean delays, as multiples of a turn's decode time.")
    spread: float = option(1.0, "Standard deviation of the delays' logarithm.", 0.0)
    repeats: int = option(3, "Repeats of each delay.", 1)

    def run(self) -> dict[str, Any]:
        """Measure and report. Raises UserError where a delay is not a number."""
        delays = parse_delays(self.delays)
        policy, params = self.build()
        agent = harness.make_agent(self.new, self.vocab)
        length = harness.episode_length(self.turns, self.prompt, self.new, self.observation)
        slots = max(self.num_slots, self.rows)
        engine = self.engine(policy, params, self.rows, length, parked=slots - self.rows)
        episodes = self.episodes or 6 * slots
        try:
            turn = self.turn_seconds(engine, agent)
            reference = self.play(engine, agent, 0.0, episodes, lock_step=0)  # warms up
            compiled = compile_count()
            free = [self.play(engine, agent, 0.0, episodes, 0) for _ in range(self.repeats)]
            free_rate = float(np.median([x.steady_rate for x in free]))
            report = {}
            for multiple in delays:
                pairs = []
                for _ in range(self.repeats):
                    pair = [
                        self.play(engine, agent, multiple * turn, episodes, lock)
                        for lock in (0, engine.num_slots)
                    ]
                    if any(x.actions != reference.actions for x in pair):
                        raise AssertionError(
                            "the lock-step loop and the episodes did not sample the same tokens"
                        )
                    pairs.append(pair)
                report[f"{multiple:g}x"] = self.summary(pairs, free_rate)
            compiled = compile_count() - compiled
        finally:
            engine.close()
        return {
            "bench": "latency",
            "sizes": dataclasses.asdict(self) | {"episodes": episodes, "places": engine.num_slots},
            "params": self.params,
            "turn_seconds": round_significant(turn),
            "no_delay": median_run(free).report(),
            "delays": report,
            "same_tokens": True,
            "compilations": compiled,
            **run_environment(),
        }

    def turn_seconds(self, engine: LocalEngine, agent: Agent) -> float:
        """The median time of one turn of all rows at once."""
        prompts = np.random.default_rng(0).integers(
            0, self.vocab, (7, self.rows, self.prompt), np.int32
        )
        took = []
        for step, batch in enumerate(prompts):
            began = time.perf_counter()
            calls = [
                f.result()
                for f in [
                    engine.submit(ids, agent.sampling, (9, step, i)) for i, ids in enumerate(batch)
                ]
            ]
            took.append(time.perf_counter() - began)
            for call in calls:
                engine.release(call)
        return float(np.median(took[2:]))

    def play(
        self, engine: LocalEngine, agent: Agent, mean_delay: float, episodes: int, lock_step: int
    ) -> PlayResult:
        """All episodes: independently (`lock_step` 0), or in waves of `lock_step` episodes."""
        workers = DelayedInlinePool(mean_delay, self.spread)
        tasks = [
            harness.make_task(self.turns, self.prompt, self.observation, i, i)
            for i in range(episodes)
        ]
        before, prefilled, was_busy = (
            engine.counts["sampled_tokens"],
            harness.prefill_tokens(engine),
            harness.busy_seconds(engine),
        )
        samples: list[tuple[float, int]] = []
        workers.on_reset = lambda: samples.append(
            (time.perf_counter(), engine.counts["sampled_tokens"])
        )
        runtime = Runtime({"policy": engine}, {"policy": agent}, workers)
        try:
            began = time.perf_counter()
            if lock_step:
                actions: EpisodeActions = []
                for first in range(0, episodes, lock_step):
                    wave = tasks[first : first + lock_step]
                    actions += runtime.run(self.play_wave(workers, engine, agent, wave, first))
            else:
                groups = runtime.collect(IndependentEpisodes(1), tasks, (0, 0))
                actions = [
                    [call.action.tolist() for call in group.trajectories[0].calls]
                    for group in groups
                ]
            seconds = time.perf_counter() - began
        finally:
            runtime.engines = {}  # the next measurement reuses the engine
            runtime.close()
        sampled, now_busy = engine.counts["sampled_tokens"] - before, harness.busy_seconds(engine)
        steady = (
            sampled / seconds
            if lock_step
            else steady_token_rate(samples, engine.num_slots, sampled / seconds)
        )
        return PlayResult(
            seconds,
            sampled,
            harness.prefill_tokens(engine) - prefilled,
            now_busy - was_busy,
            steady,
            actions,
        )

    async def play_wave(
        self,
        workers: DelayedInlinePool,
        engine: LocalEngine,
        agent: Agent,
        tasks: Sequence[Task],
        first: int,
    ) -> EpisodeActions:
        """Episodes in lock-step: all calls of a turn, all environment steps, then the next turn."""
        envs = [EnvHandle(workers, task) for task in tasks]
        openings = await asyncio.gather(*(env.reset() for env in envs))
        prompters = [PromptBuilder(agent, opening) for opening, _ in openings]
        turns: list[list[Turn]] = [[] for _ in tasks]
        calls: list[Call] = []
        for turn in range(self.turns):
            prompts = [prompter.action_prompt(so_far) for prompter, so_far in zip(prompters, turns)]
            # The runtime's keys, so that both modes sample the same tokens.
            keys = [(0, 0, first + i, 0, 0, turn) for i in range(len(tasks))]
            futures = [
                engine.submit(ids, agent.sampling, key, parent)
                for (ids, parent), key in zip(prompts, keys)
            ]
            calls = list(await asyncio.gather(*map(asyncio.wrap_future, futures)))
            actions = [agent.renderer.parse(call.action) for call in calls]
            replies = await asyncio.gather(
                *(env.step(action) for env, action in zip(envs, actions))
            )
            for prompter, call, action, so_far, reply in zip(
                prompters, calls, actions, turns, replies
            ):
                prompter.add_call(call, action)
                so_far.append(Turn((call,), action, reply[0], reply[1]))
        for call in calls:
            engine.release(call)
        for env in envs:
            env.close()
        return [[turn.calls[0].action.tolist() for turn in so_far] for so_far in turns]

    def summary(
        self, pairs: Sequence[Sequence[PlayResult]], no_delay_rate: float
    ) -> dict[str, Any]:
        """One delay: the median run of each mode, and quartiles of the paired ratios."""
        ours, lock = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return {
            "ours": median_run(ours).report(), "lock_step": median_run(lock).report(),
            "ratio": quartiles([b.seconds / a.seconds for a, b in pairs]),
            "steady_ratio": quartiles([a.steady_rate / b.steady_rate for a, b in pairs]),
            "of_no_delay": quartiles([a.steady_rate / no_delay_rate for a in ours]),
        }  # fmt: skip


def median_run(results: Sequence[PlayResult]) -> PlayResult:
    """The run of median time."""
    return sorted(results, key=lambda x: x.seconds)[len(results) // 2]


def steady_token_rate(samples: Sequence[tuple[float, int]], slots: int, overall: float) -> float:
    """Tokens per second from the second time that all slots were full to the last episode's start.

    `overall` where there is no such interval.
    """
    later = samples[2 * slots :]
    if len(later) < 2 or later[-1][0] <= later[0][0]:
        return overall
    return (later[-1][1] - later[0][1]) / (later[-1][0] - later[0][0])

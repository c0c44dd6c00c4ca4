"""`latency`: worlds that take their time, beside a lock-step loop that samples the same tokens."""

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.compilations import compilations
from agentrl_jax.launch.benches import play
from agentrl_jax.launch.benches.rivals import quartiles, significant
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.benches.worlds import Thinking, means_of
from agentrl_jax.launch.options import option
from agentrl_jax.local_engine import LocalEngine
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent, Prompter
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Call, Turn
from agentrl_jax.workers import Task, World

Actions = list[list[list[int]]]  # token ids of each episode's turns


@dataclass(frozen=True)
class Played:
    """What one way of playing the episodes took."""

    seconds: float
    sampled: int
    prefilled: int
    busy: float
    steady: float  # tokens a second while there were episodes left to begin
    actions: Actions

    def report(self) -> dict[str, Any]:
        return {
            "seconds": significant(self.seconds), "tokens_per_second": significant(self.sampled / self.seconds),
            "steady_tokens_per_second": significant(self.steady), "sampled_tokens": self.sampled, "prefill_tokens": self.prefilled,
            "device_busy": significant(self.busy / self.seconds),
        }  # fmt: skip


@dataclass
class Latency(Serving, Shape):
    """Delays are multiples of the time that a turn of all rows takes to decode, measured first."""

    rows: int = option(8, "Calls at once.", 1)
    places: int = option(64, "Episodes at once; those beyond the rows are parked while their worlds think.", 1)
    episodes: int = option(0, "Of each measurement; 0: six times the places.", 0)
    turns: int = option(3, "Of an episode.", 1)
    prompt: int = option(16, "Tokens before the first turn.", 2)
    new: int = option(16, "Tokens sampled a turn.", 1)
    observation: int = option(8, "Tokens between two turns.", 1)
    delays: str = option("1,5,20", "Mean delays, as multiples of a turn's decode time.")
    spread: float = option(1.0, "Standard deviation of the delays' logarithm.", 0.0)
    repeats: int = option(3, "Of each delay.", 1)

    def run(self) -> dict[str, Any]:
        """Measure and report. Raises UserError where the delays are no numbers."""
        delays = means_of(self.delays)
        policy, params = self.build()
        agent = play.make_agent(self.new, self.vocab)
        length = play.positions(self.turns, self.prompt, self.new, self.observation)
        places = max(self.places, self.rows)
        engine = self.engine(policy, params, self.rows, length, parked=places - self.rows)
        episodes = self.episodes or 6 * places
        try:
            turn = self.turn_seconds(engine, agent)
            at_once = self.play(engine, agent, 0.0, episodes, lock_step=0)  # warms up
            compiled = compilations()
            free = [self.play(engine, agent, 0.0, episodes, 0) for _ in range(self.repeats)]
            free_rate = float(np.median([x.steady for x in free]))
            report = {}
            for multiple in delays:
                pairs = []
                for _ in range(self.repeats):
                    pair = [self.play(engine, agent, multiple * turn, episodes, lock) for lock in (0, engine.places)]
                    if any(x.actions != at_once.actions for x in pair):
                        raise AssertionError("the lock-step loop and the episodes did not sample the same tokens")
                    pairs.append(pair)
                report[f"{multiple:g}x"] = self.summary(pairs, free_rate)
            compiled = compilations() - compiled
        finally:
            engine.close()
        return {
            "bench": "latency", "sizes": dataclasses.asdict(self) | {"episodes": episodes, "places": engine.places},
            "params": self.params, "turn_seconds": significant(turn), "no_delay": median_of(free).report(), "delays": report,
            "same_tokens": True, "compilations": compiled, **surroundings(),
        }  # fmt: skip

    def turn_seconds(self, engine: LocalEngine, agent: Agent) -> float:
        """The median time of one turn of all rows at once."""
        prompts = np.random.default_rng(0).integers(0, self.vocab, (7, self.rows, self.prompt), np.int32)
        took = []
        for step, batch in enumerate(prompts):
            began = time.perf_counter()
            calls = [f.result() for f in [engine.submit(ids, agent.sampling, (9, step, i)) for i, ids in enumerate(batch)]]
            took.append(time.perf_counter() - began)
            for call in calls:
                engine.release(call)
        return float(np.median(took[2:]))

    def play(self, engine: LocalEngine, agent: Agent, mean: float, episodes: int, lock_step: int) -> Played:
        """All episodes: as they come (`lock_step` 0), or in waves of so many whose turns wait for each other."""
        workers = Thinking(mean, self.spread)
        tasks = [play.make_task(self.turns, self.prompt, self.observation, i, i) for i in range(episodes)]
        before, prefilled, was_busy = engine.counts["sampled_tokens"], play.prefilled(engine), play.busy(engine)
        samples: list[tuple[float, int]] = []
        workers.on_start = lambda: samples.append((time.perf_counter(), engine.counts["sampled_tokens"]))
        runtime = Runtime({"policy": engine}, {"policy": agent}, workers)
        try:
            began = time.perf_counter()
            if lock_step:
                waves = [tasks[i : i + lock_step] for i in range(0, episodes, lock_step)]
                actions = [a for i, wave in enumerate(waves) for a in runtime.run(self.wave(workers, engine, agent, wave, i * lock_step))]
            else:
                groups = runtime.collect(Independent(1), tasks, (0, 0))
                actions = [[call.action.tolist() for call in group.trajectories[0].calls] for group in groups]
            seconds = time.perf_counter() - began
        finally:
            runtime.engines = {}  # the engine goes on to the next measurement
            runtime.close()
        sampled, now_busy = engine.counts["sampled_tokens"] - before, play.busy(engine)
        steady = sampled / seconds if lock_step else rate(samples, engine.places, sampled / seconds)
        return Played(seconds, sampled, play.prefilled(engine) - prefilled, now_busy - was_busy, steady, actions)

    async def wave(self, workers: Thinking, engine: LocalEngine, agent: Agent, tasks: Sequence[Task], first: int) -> Actions:
        """Episodes side by side: all calls of a turn, then all answers to them, then the next turn."""
        worlds = [World(workers, task) for task in tasks]
        openings = await asyncio.gather(*(world.reset() for world in worlds))
        prompters = [Prompter(agent, opening) for opening, _ in openings]
        turns: list[list[Turn]] = [[] for _ in tasks]
        calls: list[Call] = []
        for turn in range(self.turns):
            asked = [prompter.next(so_far) for prompter, so_far in zip(prompters, turns)]
            keys = [(0, 0, first + i, 0, 0, turn) for i in range(len(tasks))]  # as the runtime names them
            futures = [engine.submit(ids, agent.sampling, key, parent) for (ids, parent), key in zip(asked, keys)]
            calls = list(await asyncio.gather(*map(asyncio.wrap_future, futures)))
            said = [agent.renderer.parse(call.action) for call in calls]
            answers = await asyncio.gather(*(world.step(action) for world, action in zip(worlds, said)))
            for prompter, call, action, so_far, answer in zip(prompters, calls, said, turns, answers):
                prompter.called(call, action)
                so_far.append(Turn((call,), action, answer[0], answer[1]))
        for call in calls:
            engine.release(call)
        for world in worlds:
            world.close()
        return [[turn.calls[0].action.tolist() for turn in so_far] for so_far in turns]

    def summary(self, pairs: Sequence[Sequence[Played]], free_rate: float) -> dict[str, Any]:
        """One delay: either way's median run, and quartiles of the paired ratios."""
        ours, lock = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return {
            "ours": median_of(ours).report(), "lock_step": median_of(lock).report(),
            "ratio": quartiles([b.seconds / a.seconds for a, b in pairs]),
            "steady_ratio": quartiles([a.steady / b.steady for a, b in pairs]),
            "of_no_delay": quartiles([a.steady / free_rate for a in ours]),
        }  # fmt: skip


def median_of(played: Sequence[Played]) -> Played:
    """The run in the middle of them by time."""
    return sorted(played, key=lambda x: x.seconds)[len(played) // 2]


def rate(samples: Sequence[tuple[float, int]], places: int, overall: float) -> float:
    """Tokens a second from when the places were full the second time until the last episode began; `overall` where that is no time."""
    later = samples[2 * places :]
    if len(later) < 2 or later[-1][0] <= later[0][0]:
        return overall
    return (later[-1][1] - later[0][1]) / (later[-1][0] - later[0][0])

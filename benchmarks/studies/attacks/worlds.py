"""Environments that break their contract: each failure is counted with its kind, and no failed
episode has a reward.

Each fault plays two episodes, in a worker process and, where it can harm only its own environment,
in this process; so do environments without a fault, before and after.
"""

from collections.abc import Callable

from outcome import Battery
from support import misbehaving_envs
from support.fixtures import ScriptedEngine
from support.misbehaving_envs import FAULTS, Fault

from agentrl_jax.context import FullHistory
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Group, Sampling
from agentrl_jax.workers.pool import InlinePool, Task, WorkerPool
from agentrl_jax.workers.process_pool import ProcessPool

MAX_REPLY_BYTES = 2**20
RETRIES = 1
EPISODES = 2
SECONDS, SECONDS_OF_HANGING = 30.0, 3.0  # a turn may take
OBSERVATIONS = ["turn 1\n", "turn 2\n", "turn 3\n"]


def in_a_process() -> WorkerPool:
    return ProcessPool(1, max_reply_bytes=MAX_REPLY_BYTES)


def in_this_process() -> WorkerPool:
    return InlinePool(max_reply_bytes=MAX_REPLY_BYTES)


def attack(battery: Battery) -> None:
    for name, fault in FAULTS.items():
        expected = f"counted as {' or '.join(fault.kinds)}" if fault.kinds else "no effect"
        for pool in (in_a_process, in_this_process)[: 1 + fault.inline]:
            battery.attack(
                f"{name} {pool.__name__.replace('_', ' ')}",
                expected,
                lambda name=name, fault=fault, pool=pool: play(name, fault, pool),
            )


def play(name: str, fault: Fault, pool: Callable[[], WorkerPool]) -> tuple[bool, str]:
    """Whether a fault is counted, and what came of its episodes and those of the others."""
    renderer, log_lines = TextRenderer(byte_tokenizer()), list[str]()
    agent = Agent("policy", renderer, FullHistory(), Sampling(budget=8))
    timeouts = Timeouts(SECONDS_OF_HANGING if fault.hangs else SECONDS)
    names = ["", name, ""]
    tasks = [
        Task(misbehaving_envs.ENVIRONMENT_ID, seed, {"fault": x}) for seed, x in enumerate(names)
    ]
    strategy = IndependentEpisodes(EPISODES)
    with Runtime(
        {"policy": ScriptedEngine(renderer, "x")},
        {"policy": agent},
        pool(),
        RETRIES,
        timeouts,
        log_lines.append,
    ) as runtime:
        first, attacked, last = runtime.collect(strategy, tasks, (0, 0))
        (after,) = runtime.collect(strategy, [tasks[0]], (0, 1))
        failures = runtime.failures
    counts = {kind: n for kind, n in failures.counts.items() if kind != "lost"}
    happened = f"{outcome_of(attacked)}, {counts or 'no failure'}"
    if counts:
        happened += f" ({next(iter(failures.last_messages.values()))})"
    unharmed = all(map(is_complete, (first, last, after)))
    if not unharmed:
        happened += f"; others: {[outcome_of(x) for x in (first, last, after)]}"
    if not fault.kinds:
        return unharmed and is_complete(attacked) and not counts, happened
    counted = sum(counts.get(kind, 0) for kind in fault.kinds)
    dropped = attacked.num_dropped == failures.dropped == EPISODES and not attacked.trajectories
    once = sum("an environment failed" in line for line in log_lines) >= 1
    complete = counted == sum(counts.values()) == EPISODES * (1 + RETRIES)
    return unharmed and dropped and once and complete, happened


def is_complete(group: Group) -> bool:
    """Whether all episodes are those of an environment without a fault."""
    return group.num_dropped == 0 and all(
        t.total_reward == 3.0 and [turn.observation[0].text for turn in t.turns] == OBSERVATIONS
        for t in group.trajectories
    )


def outcome_of(group: Group) -> str:
    rewards = [t.total_reward for t in group.trajectories]
    return f"rewards {rewards}" if rewards else f"{group.num_dropped} dropped"

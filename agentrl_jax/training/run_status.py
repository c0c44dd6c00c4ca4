"""What a run is doing at a moment: its queues, its slow environments, its last episode."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from agentrl_jax.reporting.live_status import EnvironmentTime, Excerpt, LiveStatus, Queue, Wait
from agentrl_jax.reporting.reporter import Reporter, SilentReporter
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.watchdog import EpisodeWait
from agentrl_jax.trajectories import Trajectory

MIN_WAIT = 1.0  # seconds after which a wait is shown
MAX_EXCERPT = 8  # messages


def live_status(runtime: Runtime, reporter: Reporter | SilentReporter) -> LiveStatus:
    """A snapshot; from any thread, while the run goes on."""
    newest, totals = list(runtime.episode_counts.newest), runtime.episode_counts.totals
    waits = runtime.waits()
    longest = sorted(waits, key=lambda wait: -wait.seconds)
    return LiveStatus(
        episodes=totals.finished + totals.truncated + totals.empty + totals.failed,
        queues=[*_slot_queues(runtime), *_wait_queues(waits), *_writer_queues(reporter)],
        environments=environment_times(newest),
        waits=[Wait(*wait) for wait in longest if wait.seconds >= MIN_WAIT],
        excerpt=excerpt_of(newest[-1]) if newest else None,
    )


def _slot_queues(runtime: Runtime) -> Iterable[Queue]:
    for name, use in runtime.slot_use().items():
        waiting = f", {use.waiting:,} wait" if use.waiting else ""
        yield Queue(f"episodes of {name}", f"{use.in_use:,} of {use.total:,}{waiting}")


def _wait_queues(waits: Sequence[EpisodeWait]) -> Iterable[Queue]:
    """Calls and steps in progress, by what does them."""
    counts = Counter(wait.target.partition(" (")[0] for wait in waits)
    names = {"its environment": "steps of environments"}
    for target, count in counts.most_common():
        yield Queue(names.get(target, f"calls of {target.removeprefix('the ')}"), f"{count:,}")


def _writer_queues(reporter: Reporter | SilentReporter) -> Iterable[Queue]:
    for name, count in (
        ("batches to record", reporter.recorder.num_pending),
        ("records for trackers", reporter.trackers.num_pending),
    ):
        if count:
            yield Queue(name, f"{count:,}")


def environment_times(trajectories: Sequence[Trajectory]) -> list[EnvironmentTime]:
    """Mean and maximum of the seconds of a step, of each environment, the slowest first."""
    seconds = defaultdict(list)
    for trajectory in trajectories:
        seconds[trajectory.environment].extend(
            turn.time.environment_end - turn.time.environment_start
            for turn in trajectory.turns
            if turn.time is not None
        )
    times = [
        EnvironmentTime(name.rpartition(":")[2], sum(x) / len(x), max(x))
        for name, x in seconds.items()
        if x
    ]
    return sorted(times, key=lambda x: -x.mean)


def excerpt_of(trajectory: Trajectory) -> Excerpt:
    """The last messages of an episode."""
    task = trajectory.task.rpartition(":")[2]
    title = (
        f"last episode: {task}, {len(trajectory.turns)} turns, return "
        f"{trajectory.total_reward:.2f}, {trajectory.stop_reason}"
    )
    messages = trajectory.messages[-MAX_EXCERPT:]
    return Excerpt(title, [(message.role, message.full_text) for message in messages])

"""The flags of trackers and traces, and the trackers that --trackers names."""

from collections.abc import Sequence
from importlib.util import find_spec

from absl import flags

from agentrl_jax.errors import UserError
from agentrl_jax.reporting.mlflow_tracker import MlflowTracker
from agentrl_jax.reporting.tracker import Tracker
from agentrl_jax.reporting.trackio_tracker import TrackioTracker
from agentrl_jax.reporting.wandb_tracker import WandbTracker

flags.disclaim_key_flags()  # they are listed with the command's own
TRACKERS: dict[str, type[Tracker]] = {
    tracker.name: tracker for tracker in (WandbTracker, MlflowTracker, TrackioTracker)
}


def define_tracking_flags() -> None:
    """Define --trackers and --profile_steps."""
    flags.DEFINE_list(
        "trackers",
        [],
        "Services that follow the run beside its folder: "
        f"{', '.join(sorted(TRACKERS))}, several with commas between them; each is set up by its "
        "own environment variables (docs/tracking.md).",
    )
    flags.DEFINE_string(
        "profile_steps",
        "",
        "first:last or phase:first:last: the steps of which a trace is written into RUN/profile.",
    )


def make_trackers(names: Sequence[str]) -> list[Tracker]:
    """A tracker of each name. Raises UserError for another name, or where a package is missing."""
    for name in names:
        if name not in TRACKERS or names.count(name) > 1:
            raise UserError(
                f"--trackers takes each of {', '.join(sorted(TRACKERS))} once, not {name!r}"
            )
        if find_spec(name) is None:
            raise UserError(f"{name} is not installed: pip install 'agentrl_jax[{name}]'")
    return [TRACKERS[name]() for name in names]

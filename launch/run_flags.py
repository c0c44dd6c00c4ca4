"""Flags of a training run: what stops it, what it does with damaged records, its processes."""

from absl import flags

from agentrl_jax.training.nonfinite_updates import MAX_NONFINITE_UPDATES


def define_run_flags() -> None:
    """Define them; `agentrl-train` passes them on."""
    flags.DEFINE_integer(
        "max_nonfinite_updates",
        MAX_NONFINITE_UPDATES,
        "Updates in a row with a gradient or loss that is not finite, after which the run stops; "
        "each is skipped.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "invariants",
        "stop",
        ["stop", "warn"],
        "What follows where an invariant of docs/invariants.md does not hold.",
    )
    flags.DEFINE_enum(
        "damaged_records",
        "stop",
        ["stop", "set_aside"],
        "What follows where a resumed run finds lines of metrics.jsonl or trajectories/ damaged or "
        "missing: it stops, or moves the damaged ones to a file beside theirs and goes on.",
    )
    flags.DEFINE_string(
        "compilation_cache",
        "auto",
        "The folder of compiled programs, which a restarted run reads; auto: "
        "~/.cache/agentrl_jax/compiled on accelerators, none on a CPU; none: compile in each run.",
    )
    flags.DEFINE_string(
        "coordinator",
        "",
        "host:port at which process 0 can be reached, where processes are started by hand.",
    )
    flags.DEFINE_integer(
        "processes",
        0,
        "How many processes there are; 0: as the cluster defines, or else one.",
        lower_bound=0,
    )
    flags.DEFINE_integer("process_id", -1, "Which of them this is, from 0.", lower_bound=-1)

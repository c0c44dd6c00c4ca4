"""A plan as text for the terminal."""

from agentrl_jax.launch.plans.figures import CollectiveSummary, ProgramCost
from agentrl_jax.launch.plans.planning import Plan
from agentrl_jax.launch.plans.tables import format_rates, format_seconds
from agentrl_jax.models.memory_estimate import format_bytes


def format_plan(plan: Plan, max_exchanges: int) -> str:
    """Every program with its slowest collectives, the step, and what does not fit."""
    where = f"{plan.chips} chips" + (f" in {plan.slices} slices" if plan.slices > 1 else "")
    lines = [
        f"{plan.spec.topology}: {where}, {format_bytes(int(plan.chip.memory_bytes))} each for "
        "programs"
    ]
    for program in plan.programs.values():
        lines += ["", *_format_program(program, max_exchanges)]
    return "\n".join([*lines, "", *_format_summary(plan)])


def _format_program(x: ProgramCost, max_exchanges: int) -> list[str]:
    mesh = " x ".join(f"{axis} {n}" for axis, n in x.mesh.items() if n > 1) or "one chip"
    lines = [f"{x.name} ({mesh})"]
    kinds = [
        *x.arguments.items(),
        *((f"{kind}, resident", n) for kind, n in x.resident.items() if n),
    ]
    remaining = (
        ("padding of layouts" if x.padding > 0 else "unused", x.padding),
        ("new outputs", x.outputs),
        ("temporaries", x.temporary),
    )
    lines += _align(
        [("  " + kind, format_bytes(n)) for kind, n in (*kinds, *remaining) if n]
        + [("  memory of a chip", format_bytes(x.total))]
    )
    if x.failure:
        return [*lines, f"  does not compile: {x.failure}"]
    unit = "an iteration of its loop" if x.name == "decode" else "a run"
    lines += _align(
        [
            (
                f"  operations of a chip, {unit}",
                f"{x.operations:.4g}, of which the model needs {x.useful:.4g}",
            ),
            ("  compute", format_seconds(x.compute_seconds)),
            ("  memory traffic", f"{format_seconds(x.memory_seconds)} ({format_bytes(x.traffic)})"),
            ("  links between chips", format_seconds(x.links_seconds)),
            *(
                [("  network between slices", format_seconds(x.network_seconds))]
                if x.network_seconds
                else []
            ),
            (
                "  seconds",
                f"{format_seconds(x.seconds)} where all overlaps, bound by {x.bound}; "
                f"{format_seconds(x.seconds_without_overlap)} where nothing does",
            ),
        ]
    )
    if x.exchanges:
        head = ("  collective", "over", "members", "bytes", "times", "sent", "seconds")
        lines += _align([head, *map(_format_exchange, x.exchanges[:max_exchanges])])
        left = x.exchanges[max_exchanges:]
        if left:
            sent, took = sum(e.sent for e in left), sum(e.seconds for e in left)
            lines.append(
                f"  and {len(left)} other kinds, {format_bytes(sent)} sent, {format_seconds(took)}"
            )
    return lines


def _format_exchange(x: CollectiveSummary) -> tuple[str, ...]:
    times = f"{x.times}{' an iteration' if x.open else ''}"
    return (
        f"  {x.kind}",
        x.axes,
        str(x.members),
        f"{x.bytes:,}",
        times,
        format_bytes(x.sent),
        format_seconds(x.seconds),
    )


def _format_summary(plan: Plan) -> list[str]:
    s, rows = plan.summary(), []
    for name, label in (
        ("update", "an update"),
        ("prefill", "a prefill program"),
        ("decode", "a token of every row"),
    ):
        if f"{name}_seconds" in s:
            took, rate, mfu = format_rates(s, name)
            rows.append((label, took, f"{rate} tokens/s on all chips", f"MFU {mfu}"))
    lines = _align(rows)
    sent = plan.sent_bytes()
    if sent:
        lines.append(
            "a chip sends in an update: "
            + ", ".join(f"{format_bytes(n)} over {axes}" for axes, n in sent.items())
        )
    for name, x in plan.programs.items():
        if x.missing:
            kinds = (
                x.arguments | x.resident | {"temporaries": x.temporary, "new outputs": x.outputs}
            )
            largest = ", ".join(
                f"{kind} {format_bytes(n)}"
                for kind, n in sorted(kinds.items(), key=lambda item: -item[1])[:4]
                if n
            )
            least = "at least " if x.failure else ""
            lines.append(
                f"{name} does not fit: it takes {least}{format_bytes(x.total)}, "
                f"{format_bytes(x.missing)} too much ({largest})"
            )
    return [*lines, "everything fits"] if plan.fits else lines


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(n) for cell, n in zip(row, wide)).rstrip() for row in rows]

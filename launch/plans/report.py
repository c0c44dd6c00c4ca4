"""A plan as lines for a person."""

from agentrl_jax.launch.plans.figures import Exchange, Figures
from agentrl_jax.launch.plans.planning import Plan
from agentrl_jax.launch.plans.tables import rates, spelled
from agentrl_jax.models.sizes import readable


def lines(plan: Plan, show: int) -> str:
    """Every program with its `show` longest exchanges, the step, and what does not fit."""
    where = f"{plan.chips} chips" + (f" in {plan.slices} slices" if plan.slices > 1 else "")
    found = [f"{plan.subject.topology}: {where}, {readable(int(plan.chip.memory))} each for programs"]
    for program in plan.programs.values():
        found += ["", *_program(program, show)]
    return "\n".join([*found, "", *_summary(plan)])


def _program(x: Figures, show: int) -> list[str]:
    mesh = " x ".join(f"{axis} {n}" for axis, n in x.mesh.items() if n > 1) or "one chip"
    found = [f"{x.name} ({mesh})"]
    kinds = [*x.arguments.items(), *((f"{kind}, beside it", n) for kind, n in x.beside.items() if n)]
    rest = (("padding of layouts" if x.padding > 0 else "not used", x.padding), ("new outputs", x.outputs), ("temporaries", x.temporary))
    found += _aligned([("  " + kind, readable(n)) for kind, n in (*kinds, *rest) if n] + [("  memory of a chip", readable(x.total))])
    if x.failure:
        return [*found, f"  does not compile: {x.failure}"]
    stepped = "a round of its loop" if x.name == "decode" else "a run"
    found += _aligned(
        [
            (f"  operations of a chip, {stepped}", f"{x.operations:.4g}, of which the model takes {x.useful:.4g}"),
            ("  compute", spelled(x.compute_seconds)),
            ("  memory traffic", f"{spelled(x.memory_seconds)} ({readable(x.traffic)})"),
            ("  links between chips", spelled(x.links_seconds)),
            *([("  network between slices", spelled(x.network_seconds))] if x.network_seconds else []),
            ("  seconds", f"{spelled(x.seconds)} where all overlaps, bound by {x.bound}; {spelled(x.seconds_apart)} where nothing does"),
        ]
    )
    if x.exchanges:
        head = ("  exchange", "over", "members", "bytes", "times", "sent", "seconds")
        found += _aligned([head, *map(_exchange, x.exchanges[:show])])
        left = x.exchanges[show:]
        if left:
            sent, took = sum(e.sent for e in left), sum(e.seconds for e in left)
            found.append(f"  and {len(left)} kinds more, {readable(sent)} sent, {spelled(took)}")
    return found


def _exchange(x: Exchange) -> tuple[str, ...]:
    times = f"{x.times}{' a round' if x.open else ''}"
    return f"  {x.kind}", x.axes, str(x.members), f"{x.bytes:,}", times, readable(x.sent), spelled(x.seconds)


def _summary(plan: Plan) -> list[str]:
    s, rows = plan.summary(), []
    for name, what in (("update", "an update"), ("prefill", "a prefill program"), ("decode", "a token of every row")):
        if f"{name}_seconds" in s:
            took, rate, mfu = rates(s, name)
            rows.append((what, took, f"{rate} tokens/s on all chips", f"MFU {mfu}"))
    found = _aligned(rows)
    sent = plan.moved()
    if sent:
        found.append("a chip sends in an update: " + ", ".join(f"{readable(n)} over {axes}" for axes, n in sent.items()))
    for name, x in plan.programs.items():
        if x.missing:
            kinds = x.arguments | x.beside | {"temporaries": x.temporary, "new outputs": x.outputs}
            largest = ", ".join(f"{kind} {readable(n)}" for kind, n in sorted(kinds.items(), key=lambda item: -item[1])[:4] if n)
            least = "at least " if x.failure else ""
            found.append(f"{name} does not fit: it takes {least}{readable(x.total)}, {readable(x.missing)} too much ({largest})")
    return [*found, "everything fits"] if plan.fits else found


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(n) for cell, n in zip(row, wide)).rstrip() for row in rows]

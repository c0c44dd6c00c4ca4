"""Reports of plans as Markdown: every figure of docs/scaling.md."""

from typing import Any

from agentrl_jax.models.sizes import readable

Report = dict[str, Any]


def plans_table(found: dict[str, Report]) -> str:
    """A section for each plan: its command, what each program takes, what a step takes, what does not fit."""
    return "\n\n".join(f"### {name}\n\n{_plan(report)}" for name, report in found.items())


def _plan(report: Report) -> str:
    head = ["program", "arguments", "beside", "temporaries, outputs", "in all", "over links", "over network", "seconds", "bound by"]
    rows = [_program(name, x) for name, x in report["programs"].items()]
    slices = f" in {report['slices']} slices" if report["slices"] > 1 else ""
    said = [f"{report['chips']} chips{slices}, {readable(report['available'])} each for programs."]
    for name, what in (("update", "An update"), ("prefill", "A prefill program"), ("decode", "A token of every call")):
        if f"{name}_seconds" in report["summary"]:
            took, rate, mfu = rates(report["summary"], name)
            said.append(f"{what}: {took}, {rate} tokens/s, MFU {mfu}.")
    for name, x in report["programs"].items():
        if x["missing"]:
            least = "at least " if x["failure"] else ""
            said.append(f"**{name} does not fit: {least}{readable(x['missing'])} too much.**")
    if report["fits"]:
        said.append("Everything fits.")
    return f"`{report['command']}`\n\n{table([head, *rows])}\n\n{' '.join(said)}"


def rates(summary: dict[str, float], name: str) -> tuple[str, str, str]:
    """Seconds, tokens a second and MFU of a part of a plan: where everything overlaps, and where nothing does."""
    first, last = ({key: summary[f"{name}_{key}{end}"] for key in ("seconds", "tokens_per_second", "mfu")} for end in ("", "_apart"))
    return (
        f"{spelled(first['seconds'])} to {spelled(last['seconds'])}",
        f"{last['tokens_per_second']:,.0f} to {first['tokens_per_second']:,.0f}",
        f"{100 * last['mfu']:.1f} to {100 * first['mfu']:.1f} %",
    )


def _program(name: str, x: Report) -> list[str]:
    beside = {kind: n for kind, n in x["beside"].items() if n}
    network = sum(e.get("network", 0) for e in x["exchanges"])
    links = sum(e["sent"] for e in x["exchanges"]) - network
    held = [name, _kinds(x["arguments"]), _kinds(beside), readable(x["temporary"] + x["outputs"]), readable(x["total"])]
    if x["failure"]:
        return [*held, "", "", "does not compile", ""]
    took = f"{spelled(x['seconds'])} to {spelled(x['seconds_apart'])}"
    return [*held, readable(links), readable(network) if network else "", took, x["bound"]]


def scaling_table(cells: list[tuple[str, Report]]) -> str:
    """A line for each number of chips, weak or strong."""
    head = ["scaling", "chips", "memory of a chip", "temporaries", "a chip sends", "an update takes", "tokens/s", "MFU"]
    return table([head, *(_cell(kind, report) for kind, report in cells)])


def _cell(kind: str, report: Report) -> list[str]:
    programs, chips = report["programs"], str(report["chips"])
    total, over = (max(x[name] for x in programs.values()) for name in ("total", "missing"))
    held = readable(total) + (f", {readable(over)} too much" if over else "")
    if "update_seconds" not in report["summary"]:
        return [kind, chips, held, "", "", "does not compile", "", ""]
    sent = readable(sum(report["sent"].values()))
    return [kind, chips, held, readable(programs["gradient"]["temporary"]), sent, *rates(report["summary"], "update")]


def table(rows: list[list[str]]) -> str:
    """Markdown, the first row its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind} {readable(n)}" for kind, n in kinds.items())


def spelled(seconds: float) -> str:
    """0.0123  ->  12.3 ms"""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0" if not seconds else f"{seconds * 1e6:.2g} us"

"""Reports of plans as Markdown: every figure of docs/scaling.md."""

from typing import Any

from agentrl_jax.models.sizes import readable

Report = dict[str, Any]


def plans_table(found: dict[str, Report]) -> str:
    """A section for each plan: its command, what each program takes, what a step takes, what does not fit."""
    return "\n\n".join(f"### {name}\n\n{_plan(report)}" for name, report in found.items())


def _plan(report: Report) -> str:
    rows = [_program(name, x) for name, x in report["programs"].items()]
    head = [
        "program",
        "arguments",
        "beside",
        "temporaries, new outputs",
        "in all",
        "sent over links",
        "over network",
        "seconds",
        "bound by",
    ]
    slices = f" in {report['slices']} slices" if report["slices"] > 1 else ""
    said = [f"{report['chips']} chips{slices}, {readable(report['available'])} each for programs."]
    s = report["summary"]
    for name, what in (("update", "An update"), ("prefill", "A prefill program"), ("decode", "A token of every call")):
        if f"{name}_seconds" in s:
            low, high = s[f"{name}_seconds"], s[f"{name}_seconds_apart"]
            fast, slow = s[f"{name}_tokens_per_second"], s[f"{name}_tokens_per_second_apart"]
            most, least = 100 * s[f"{name}_mfu"], 100 * s[f"{name}_mfu_apart"]
            said.append(
                f"{what}: {_seconds(low)} to {_seconds(high)}, {slow:,.0f} to {fast:,.0f} tokens/s, MFU {least:.1f} to {most:.1f} %."
            )
    for name, x in report["programs"].items():
        if x["missing"]:
            least = "at least " if x["failure"] else ""
            said.append(f"**{name} does not fit: {least}{readable(x['missing'])} too much.**")
    if report["fits"]:
        said.append("Everything fits.")
    return f"`{report['command']}`\n\n{table([head, *rows])}\n\n{' '.join(said)}"


def _program(name: str, x: Report) -> list[str]:
    beside = {kind: n for kind, n in x["beside"].items() if n}
    sent = sum(e["sent"] for e in x["exchanges"])
    network = sum(e.get("network", 0) for e in x["exchanges"])
    return [
        name, _kinds(x["arguments"]), _kinds(beside), readable(x["temporary"] + x["outputs"]), readable(x["total"]),
        *(["", "", "does not compile", ""] if x["failure"] else [
            readable(sent - network), readable(network) if network else "", f"{_seconds(x['seconds'])} to {_seconds(x['seconds_apart'])}", x["bound"],
        ]),
    ]  # fmt: skip


def scaling_table(cells: list[tuple[str, Report]]) -> str:
    """A line for each number of chips, weak or strong."""
    head = ["scaling", "chips", "memory of a chip", "temporaries", "a chip sends", "an update takes", "tokens/s", "MFU"]
    return table([head, *(_cell(kind, report) for kind, report in cells)])


def _cell(kind: str, report: Report) -> list[str]:
    programs, s = report["programs"], report["summary"]
    total = max(x["total"] for x in programs.values())
    over = max(x["missing"] for x in programs.values())
    held = readable(total) + (f", {readable(over)} too much" if over else "")
    if "update_seconds" not in s:
        return [kind, str(report["chips"]), held, "", "", "does not compile", "", ""]
    return [
        kind, str(report["chips"]), held, readable(programs["gradient"]["temporary"]), readable(sum(report["sent"].values())),
        f"{_seconds(s['update_seconds'])} to {_seconds(s['update_seconds_apart'])}",
        f"{s['update_tokens_per_second_apart']:,.0f} to {s['update_tokens_per_second']:,.0f}",
        f"{100 * s['update_mfu_apart']:.0f} to {100 * s['update_mfu']:.0f} %",
    ]  # fmt: skip


def table(rows: list[list[str]]) -> str:
    """Markdown, the first row its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind} {readable(n)}" for kind, n in kinds.items())


def _seconds(x: float) -> str:
    """0.01234  ->  12.3 ms"""
    return f"{x:.2f} s" if x >= 1 else f"{1e3 * x:.3g} ms"

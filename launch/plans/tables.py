"""Reports of plans as Markdown: every figure of docs/scaling.md."""

from typing import Any

from agentrl_jax.models.memory_estimate import format_bytes

Report = dict[str, Any]


def plans_table(reports: dict[str, Report]) -> str:
    """A section per plan: its command, the costs of programs and of a step, what does not fit."""
    return "\n\n".join(f"### {name}\n\n{_plan_section(report)}" for name, report in reports.items())


def _plan_section(report: Report) -> str:
    head = [
        "program",
        "arguments",
        "also resident",
        "temporaries, outputs",
        "in all",
        "over links",
        "over network",
        "seconds",
        "bound by",
    ]
    rows = [_program_row(name, x) for name, x in report["programs"].items()]
    slices = f" in {report['slices']} slices" if report["slices"] > 1 else ""
    sentences = [
        f"{report['chips']} chips{slices}, {format_bytes(report['available'])} each for programs."
    ]
    for name, label in (
        ("update", "An update"),
        ("prefill", "A prefill program"),
        ("decode", "A token of every call"),
    ):
        if f"{name}_seconds" in report["summary"]:
            took, rate, mfu = format_rates(report["summary"], name)
            sentences.append(f"{label}: {took}, {rate} tokens/s, MFU {mfu}.")
    for name, x in report["programs"].items():
        if x["missing"]:
            least = "at least " if x["failure"] else ""
            sentences.append(
                f"**{name} does not fit: {least}{format_bytes(x['missing'])} too much.**"
            )
    if report["fits"]:
        sentences.append("Everything fits.")
    return f"`{report['command']}`\n\n{markdown_table([head, *rows])}\n\n{' '.join(sentences)}"


def format_rates(summary: dict[str, float], name: str) -> tuple[str, str, str]:
    """Seconds, tokens per second and MFU of a part as ranges between full overlap and none."""
    overlapped, apart = (
        {key: summary[f"{name}_{key}{end}"] for key in ("seconds", "tokens_per_second", "mfu")}
        for end in ("", "_apart")
    )
    return (
        f"{format_seconds(overlapped['seconds'])} to {format_seconds(apart['seconds'])}",
        f"{apart['tokens_per_second']:,.0f} to {overlapped['tokens_per_second']:,.0f}",
        f"{100 * apart['mfu']:.1f} to {100 * overlapped['mfu']:.1f} %",
    )


def _program_row(name: str, x: Report) -> list[str]:
    resident = {kind: n for kind, n in x["resident"].items() if n}
    network = sum(e.get("network", 0) for e in x["exchanges"])
    links = sum(e["sent"] for e in x["exchanges"]) - network
    cells = [
        name,
        _format_sizes(x["arguments"]),
        _format_sizes(resident),
        format_bytes(x["temporary"] + x["outputs"]),
        format_bytes(x["total"]),
    ]
    if x["failure"]:
        return [*cells, "", "", "does not compile", ""]
    took = f"{format_seconds(x['seconds'])} to {format_seconds(x['seconds_apart'])}"
    return [*cells, format_bytes(links), format_bytes(network) if network else "", took, x["bound"]]


def scaling_table(cells: list[tuple[str, Report]]) -> str:
    """A row for each number of chips, weak or strong scaling."""
    head = [
        "scaling",
        "chips",
        "memory of a chip",
        "temporaries",
        "a chip sends",
        "an update takes",
        "tokens/s",
        "MFU",
    ]
    return markdown_table([head, *(_scaling_row(kind, report) for kind, report in cells)])


def _scaling_row(kind: str, report: Report) -> list[str]:
    programs, chips = report["programs"], str(report["chips"])
    total, over = (max(x[name] for x in programs.values()) for name in ("total", "missing"))
    cells = format_bytes(total) + (f", {format_bytes(over)} too much" if over else "")
    if "update_seconds" not in report["summary"]:
        return [kind, chips, cells, "", "", "does not compile", "", ""]
    sent = format_bytes(sum(report["sent"].values()))
    return [
        kind,
        chips,
        cells,
        format_bytes(programs["gradient"]["temporary"]),
        sent,
        *format_rates(report["summary"], "update"),
    ]


def markdown_table(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _format_sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{kind} {format_bytes(n)}" for kind, n in sizes.items())


def format_seconds(seconds: float) -> str:
    """0.0123  ->  12.3 ms"""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0" if not seconds else f"{seconds * 1e6:.2g} us"

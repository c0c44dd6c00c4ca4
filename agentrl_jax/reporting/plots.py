"""curves.png: loss, return, win rate and entropy of a run in one figure."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.reporting.dependencies import require_package
from agentrl_jax.reporting.statistics import REWARD_PART, EvaluationSummary
from agentrl_jax.storage import jsonl

LABEL_GAP = 0.055  # between two labels, as a fraction of the panel's height


@dataclass(frozen=True, eq=False)
class Panel:
    """One metric against training steps, and its mean for each evaluated player."""

    title: str
    label: str
    color: str
    steps: np.ndarray  # [n]
    values: np.ndarray  # [n]
    players: Sequence[tuple[str, float]] = ()
    # (label, steps, values) of each environment of a mixture
    environments: Sequence[tuple[str, np.ndarray, np.ndarray]] = ()
    is_fraction: bool = False  # whether the metric lies between 0 and 1


def draw(
    metrics_path: str | os.PathLike[str],
    out_png: str | os.PathLike[str],
    summaries: Sequence[EvaluationSummary] | None = None,
) -> None:
    """Write `figure` as a PNG file of 1200 x 800 pixels."""
    figure(metrics_path, summaries).savefig(out_png)


def figure(
    metrics_path: str | os.PathLike[str], summaries: Sequence[EvaluationSummary] | None = None
) -> Any:
    """The loss of supervised phases, and the mean return, win rate, entropy and named reward parts
    of rollout phases, as a matplotlib figure.

    A phase without rollout metrics counts as supervised. Panels without values are left out.

    Raises:
        UserError: the file cannot be read, or matplotlib is missing.
    """
    require_package("matplotlib")
    from matplotlib.figure import Figure  # not pyplot: no window, no global state, always Agg

    panels = _panels([line for _, line in jsonl.read_lines(metrics_path)], summaries or ())
    canvas = Figure(figsize=(12, 8), dpi=100, layout="constrained")
    canvas.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # type: ignore[union-attr]
    if not panels:
        canvas.text(
            0.5, 0.5, "No step has been recorded yet.", ha="center", va="center", fontsize=16
        )
    columns = 1 if len(panels) == 1 else 2
    for i, panel in enumerate(panels):
        _draw_panel(canvas.add_subplot(-(-len(panels) // columns), columns, i + 1), panel)
    caption: list[str] = []
    if any(len(panel.steps) for panel in panels):
        caption += ["light: single steps", "dark: running mean"]
    if any(panel.players for panel in panels):
        caption += ["dashed: mean over the evaluation episodes"]
    canvas.supxlabel("     ".join(caption), fontsize=11, color="#555555")
    return canvas


def _panels(lines: Sequence[dict[str, Any]], summaries: Sequence[EvaluationSummary]) -> list[Panel]:
    """The panels that have values or evaluated players."""
    phases = list(dict.fromkeys(str(line.get("phase")) for line in lines))
    with_rollouts = {
        str(line.get("phase"))
        for line in lines
        if any(name.startswith("rollout/") for name in line)
    }
    rollout_phases = [phase for phase in phases if phase in with_rollouts]
    supervised_phases = [phase for phase in phases if phase not in with_rollouts]

    # Several environments would put their players on top of each other: the table has them.
    rows = [s for s in summaries if not s.environment]
    returns = [(s.name, s.mean_return) for s in rows if math.isfinite(s.mean_return)]
    win_rates = [(s.name, s.win_rate) for s in rows if s.win_rate is not None]
    supervised, rollouts = (
        f" ({', '.join(names).upper()})" if names else ""
        for names in (supervised_phases, rollout_phases)
    )
    panels = [
        Panel(
            f"Supervised{supervised}: loss",
            "loss per token",
            "#1f6fb4",
            *_series(lines, "loss", supervised_phases),
        ),
        Panel(
            f"Rollouts{rollouts}: return of an episode",
            "mean return",
            "#2a8f57",
            *_series(lines, "rollout/return", rollout_phases),
            returns,
            _environment_series(lines, "return", rollout_phases),
        ),
        Panel(
            f"Rollouts{rollouts}: win rate",
            "win rate",
            "#cf4257",
            *_series(lines, "rollout/success", rollout_phases),
            win_rates,
            _environment_series(lines, "success", rollout_phases),
            is_fraction=True,
        ),
        Panel(
            f"Rollouts{rollouts}: entropy of the policy",
            "entropy per token (nats)",
            "#7a5195",
            *_series(lines, "entropy", rollout_phases),
        ),
    ]
    panels += [
        Panel(
            f"Rollouts{rollouts}: reward part {name!r}",
            "mean per episode",
            "#b8862b",
            *_series(lines, REWARD_PART + name, rollout_phases),
        )
        for name in _reward_parts(lines)
    ]
    return [panel for panel in panels if len(panel.steps) or panel.players]


def _reward_parts(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The named parts of the reward, where some phase has more than one."""
    parts = [
        name.removeprefix(REWARD_PART)
        for line in lines
        for name in line
        if name.startswith(REWARD_PART)
    ]
    names = list(dict.fromkeys(parts))
    return names if len(names) > 1 else []


def _series(
    lines: Sequence[dict[str, Any]], name: str, phases: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a metric, [n] each; the steps of phases are concatenated."""
    steps, values, start = [], [], 0
    for phase in phases:
        phase_lines = [line for line in lines if str(line.get("phase")) == phase]
        points = [
            (start + line["step"], line[name]) for line in phase_lines if line.get(name) is not None
        ]
        steps += [step for step, _ in points]
        values += [value for _, value in points]
        start += max((line["step"] + 1 for line in phase_lines), default=0)
    return np.asarray(steps, np.float64), np.asarray(values, np.float64)


def _environment_series(
    lines: Sequence[dict[str, Any]], name: str, phases: Sequence[str]
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """`_series` of rollout/<label>/<name> for each environment of a mixture, with its label."""
    parts = (metric.split("/") for line in lines for metric in line)
    labels = dict.fromkeys(p[1] for p in parts if len(p) == 3 and (p[0], p[2]) == ("rollout", name))
    return [(x, *_series(lines, f"rollout/{x}/{name}", phases)) for x in labels]


def _draw_panel(axes: Any, panel: Panel) -> None:
    window = max(1, len(panel.values) // 20)
    marker = "o" if len(panel.values) == 1 else None
    for _, mean in panel.players:
        axes.axhline(mean, linestyle=(0, (5, 3)), linewidth=1.2, color="#666666")
    axes.plot(panel.steps, panel.values, color=panel.color, alpha=0.3, linewidth=1)
    axes.plot(
        panel.steps,
        running_mean(panel.values, window),
        color=panel.color,
        linewidth=2.4,
        marker=marker,
    )
    for label, steps, values in panel.environments:
        axes.plot(
            steps, running_mean(values, max(1, len(values) // 20)), linewidth=1.4, label=label
        )
    if panel.environments:
        axes.legend(fontsize=10)
    axes.set_title(panel.title, fontsize=13, loc="left")
    axes.set_ylabel(panel.label, fontsize=11)
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.steps):
        axes.set_xlabel("step", fontsize=11)
        axes.xaxis.get_major_locator().set_params(integer=True)
    else:
        axes.set_xticks([])
    if panel.is_fraction:
        from matplotlib.ticker import PercentFormatter

        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _label_players(axes, panel)


def _label_players(axes: Any, panel: Panel) -> None:
    """Write each player's name and mean at the right end of its line, without overlaps."""
    low, high = axes.get_ylim()
    players = sorted(panel.players, key=lambda player: player[1])
    heights = spread([(mean - low) / (high - low) for _, mean in players], LABEL_GAP)
    for (name, mean), height in zip(players, heights):
        text = f"{name} {100 * mean:.0f} %" if panel.is_fraction else f"{name} {mean:.2f}"
        axes.annotate(
            text,
            (1.0, mean),
            xycoords=("axes fraction", "data"),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize=11,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.8},
        )


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Ascending positions moved apart to at least `gap` between neighbors; a cluster that is moved
    apart keeps its center.

    spread([0.5, 0.5], 0.2) -> [0.4, 0.6]
    """
    clusters: list[list[float]] = []
    for position in positions:
        clusters.append([position])
        while len(clusters) > 1:
            *_, previous, last = clusters
            if _center(last) - _center(previous) >= gap * (len(last) + len(previous)) / 2:
                break
            clusters[-2:] = [previous + last]
    return [
        _center(cluster) + gap * (i - (len(cluster) - 1) / 2)
        for cluster in clusters
        for i in range(len(cluster))
    ]


def _center(positions: Sequence[float]) -> float:
    return sum(positions) / len(positions)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those before it, `window` in all (fewer at the start)."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)

"""curves.png: what a run learned, in one picture."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax import journal
from agentrl_jax.statistics import Summary

GAP = 0.055  # between two labels, as a share of the panel's height


@dataclass(frozen=True, eq=False)
class Panel:
    """One quantity against steps, and the evaluated players' means of it."""

    title: str
    label: str
    colour: str
    steps: np.ndarray  # [n]
    values: np.ndarray  # [n]
    players: Sequence[tuple[str, float]] = ()
    share: bool = False  # whether the quantity lies between 0 and 1


def draw(metrics_path: str | os.PathLike[str], out_png: str | os.PathLike[str], summaries: Sequence[Summary] | None = None) -> None:
    """Write the picture of `figure`, 1200 x 800 pixels."""
    figure(metrics_path, summaries).savefig(out_png)


def figure(metrics_path: str | os.PathLike[str], summaries: Sequence[Summary] | None = None) -> Any:
    """The loss of imitation, and the mean return, win rate and entropy of reinforcement learning, as a figure that notebooks show.

    A phase that plays no episodes counts as imitation. What was not recorded is not drawn. Raises UserError where the file
    cannot be read.
    """
    from matplotlib.figure import Figure  # without pyplot there is no window and no global state: always the Agg backend

    panels = _panels([line for _, line in journal.lines_of(metrics_path)], summaries or ())
    picture = Figure(figsize=(12, 8), dpi=100, layout="constrained")
    picture.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # type: ignore[union-attr]
    if not panels:
        picture.text(0.5, 0.5, "No step has been recorded yet.", ha="center", va="center", fontsize=16)
    columns = 1 if len(panels) == 1 else 2
    for i, panel in enumerate(panels):
        _draw_panel(picture.add_subplot(-(-len(panels) // columns), columns, i + 1), panel)
    caption = ["light: single steps", "dark: running mean"] if any(len(panel.steps) for panel in panels) else []
    caption += ["dashed: mean over the episodes of the evaluation"] if any(panel.players for panel in panels) else []
    picture.supxlabel("     ".join(caption), fontsize=11, color="#555555")
    return picture


def _panels(lines: Sequence[dict[str, Any]], summaries: Sequence[Summary]) -> list[Panel]:
    """The panels that have something to show."""
    phases = list(dict.fromkeys(str(line.get("phase")) for line in lines))
    playing = [p for p in phases if any(str(line.get("phase")) == p and any(n.startswith("rollout/") for n in line) for line in lines)]
    reading = [p for p in phases if p not in playing]

    returns = [(s.name, s.mean_return) for s in summaries if math.isfinite(s.mean_return)]
    wins = [(s.name, s.win_rate) for s in summaries if s.win_rate is not None]
    learned, played = (f" ({', '.join(some).upper()})" if some else "" for some in (reading, playing))
    panels = [
        Panel(f"Imitation{learned}: how badly it predicts", "loss per token", "#1f6fb4", *_series(lines, "loss", reading)),
        Panel(f"Play{played}: reward of an episode", "mean return", "#2a8f57", *_series(lines, "rollout/return", playing), returns),
        Panel(f"Play{played}: episodes won", "win rate", "#cf4257", *_series(lines, "rollout/success", playing), wins, share=True),
        Panel(f"Play{played}: how undecided the policy is", "entropy per token (nats)", "#7a5195", *_series(lines, "entropy", playing)),
    ]
    return [panel for panel in panels if len(panel.steps) or panel.players]


def _series(lines: Sequence[dict[str, Any]], name: str, phases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a metric; several phases stand one after the other."""
    steps, values, start = [], [], 0
    for phase in phases:
        recorded = [line for line in lines if str(line.get("phase")) == phase]
        points = [(start + line["step"], line[name]) for line in recorded if line.get(name) is not None]
        steps += [step for step, _ in points]
        values += [value for _, value in points]
        start += max((line["step"] + 1 for line in recorded), default=0)
    return np.asarray(steps, np.float64), np.asarray(values, np.float64)


def _draw_panel(axes: Any, panel: Panel) -> None:
    window = max(1, len(panel.values) // 20)
    dot = "o" if len(panel.values) == 1 else None
    for _, mean in panel.players:
        axes.axhline(mean, linestyle=(0, (5, 3)), linewidth=1.2, color="#666666")
    axes.plot(panel.steps, panel.values, color=panel.colour, alpha=0.3, linewidth=1)
    axes.plot(panel.steps, running_mean(panel.values, window), color=panel.colour, linewidth=2.4, marker=dot)
    axes.set_title(panel.title, fontsize=13, loc="left")
    axes.set_ylabel(panel.label, fontsize=11)
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.steps):
        axes.set_xlabel("step", fontsize=11)
        axes.xaxis.get_major_locator().set_params(integer=True)
    else:
        axes.set_xticks([])
    if panel.share:
        from matplotlib.ticker import PercentFormatter

        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _label_players(axes, panel)


def _label_players(axes: Any, panel: Panel) -> None:
    """Write each player's name and mean at the right end of its line, moved apart where lines are close."""
    low, high = axes.get_ylim()
    players = sorted(panel.players, key=lambda player: player[1])
    for (name, mean), place in zip(players, spread([(mean - low) / (high - low) for _, mean in players], GAP)):
        text = f"{name} {100 * mean:.0f} %" if panel.share else f"{name} {mean:.2f}"
        axes.annotate(
            text, (1.0, mean), xycoords=("axes fraction", "data"), xytext=(1.03, place), textcoords="axes fraction", va="center",
            fontsize=11, annotation_clip=False, arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.8},
        )  # fmt: skip


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved apart so that neighbours are at least `gap` from each other; a pushed cluster keeps its centre.

    spread([0.5, 0.5], 0.2) -> [0.4, 0.6]
    """
    clusters: list[list[float]] = []
    for place in places:
        clusters.append([place])
        while len(clusters) > 1 and _centre(clusters[-1]) - _centre(clusters[-2]) < gap * (len(clusters[-1]) + len(clusters[-2])) / 2:
            last = clusters.pop()
            clusters[-1] += last
    return [_centre(cluster) + gap * (i - (len(cluster) - 1) / 2) for cluster in clusters for i in range(len(cluster))]


def _centre(places: Sequence[float]) -> float:
    return sum(places) / len(places)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those before it, `window` in all (fewer at the start)."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)

/** The metrics of all runs, one small chart each. */
import { useState } from "preact/hooks";
import type { View } from "./context";
import { extentOf, nearest, pathOf, smooth } from "./curves";
import { useKeys, useLoaded } from "./hooks";
import { format, visible } from "./text";
import type { Curve, Metrics } from "./types";

const WIDTH = 320, HEIGHT = 120;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

interface Line {
  run: string;
  index: number;
  curve: Curve;
}

export function Curves({ source, runs, run: current, version, go }: View) {
  const { data, error } = useLoaded(() => Promise.all(runs.map((_, i) => source.metrics(i))), String(runs.length), source.live ? version : 0);
  const [filter, setFilter] = useState("");
  const [smoothing, setSmoothing] = useState("0");
  const [chosen, setChosen] = useState("");
  useKeys({ Escape: () => go("episodes") });
  const phases = [...new Set((data ?? []).flatMap((metrics) => Object.keys(metrics)))];
  const phase = phases.includes(chosen) ? chosen : Object.keys(data?.[current] ?? {}).pop() ?? phases[0] ?? "";
  const names = metricNames(data ?? [], phase).filter((name) => name.toLowerCase().includes(filter.toLowerCase()));
  return (
    <main class="page wide">
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>Metrics <input type="search" value={filter} placeholder="part of a name" onInput={(e) => setFilter(e.currentTarget.value)} /></label>
        {phases.length > 1 && <label>Phase <select value={phase} onChange={(e) => setChosen(e.currentTarget.value)}>{phases.map((x) => <option>{x}</option>)}</select></label>}
        <label>
          Smoothing{" "}
          <select value={smoothing} onChange={(e) => setSmoothing(e.currentTarget.value)}>
            <option value="0">none</option><option value="0.6">a little</option><option value="0.9">much</option>
          </select>
        </label>
        {runs.length > 1 && runs.map((run, i) => <span class="key"><svg width="26" height="10" aria-hidden="true"><path class={`line run-${i % 4}`} stroke-dasharray={DASHES[i % 4]} d="M0 5L26 5" /></svg> {run.name}</span>)}
      </form>
      {error && <p class="error" role="alert">{error}</p>}
      {data && !names.length && <p class="note">No metric {filter ? "has that name" : "is recorded yet"}.</p>}
      <div class="charts">
        {names.map((name) => <Chart key={name} name={name} lines={linesOf(data ?? [], runs.map((x) => x.name), phase, name, Number(smoothing))} />)}
      </div>
    </main>
  );
}

/** What is looked at most comes first. */
function metricNames(data: Metrics[], phase: string): string[] {
  const names = [...new Set(data.flatMap((metrics) => Object.keys(metrics[phase] ?? {})))];
  const rank = (name: string) => (/^rollout\/(return|success)/.test(name) ? 0 : name.startsWith("time/") ? 2 : 1);
  return names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

function linesOf(data: Metrics[], runs: string[], phase: string, name: string, smoothing: number): Line[] {
  return data.flatMap((metrics, index) => {
    const curve = metrics[phase]?.[name];
    return curve ? [{ run: runs[index] ?? "", index, curve: { ...curve, values: smooth(curve.values, smoothing) } }] : [];
  });
}

function Chart({ name, lines }: { name: string; lines: Line[] }) {
  const [at, setAt] = useState<number>();
  const extent = extentOf(lines.map((x) => x.curve));
  const [x0, x1] = extent.x;
  const move = (e: MouseEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    setAt(x0 + ((e.clientX - box.left) / box.width) * (x1 - x0));
  };
  const readings = lines.map((line) => {
    const i = at === undefined ? line.curve.steps.length - 1 : nearest(line.curve.steps, at);
    return { ...line, step: line.curve.steps[i] ?? NaN, value: line.curve.values[i] ?? NaN };
  });
  const cross = at === undefined ? undefined : (((readings[0]?.step ?? 0) - x0) / (x1 - x0)) * WIDTH;
  return (
    <figure>
      <figcaption>{visible(name)}</figcaption>
      <div class="plot">
        <div class="axis" aria-hidden="true"><span>{format(extent.y[1])}</span><span>{format(extent.y[0])}</span></div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" onMouseMove={move} onMouseLeave={() => setAt(undefined)}
          aria-label={`${name}: ${readings.map((x) => `${x.run} ${format(x.value)} at step ${format(x.step, 6)}`).join("; ")}; from ${format(extent.y[0])} to ${format(extent.y[1])}`}>
          {lines.map((line) => <path class={`line run-${line.index % 4}`} stroke-dasharray={DASHES[line.index % 4]} d={pathOf(line.curve, extent, WIDTH, HEIGHT)} />)}
          {cross !== undefined && <path class="cross" d={`M${cross} 0L${cross} ${HEIGHT}`} />}
        </svg>
      </div>
      <p class="reading">
        {readings.map((x) => (
          <span><b class={`run-${x.index % 4}`}>{format(x.value)}</b>{lines.length > 1 && <> {visible(x.run)}</>} <small>step {format(x.step, 6)}</small></span>
        ))}
      </p>
    </figure>
  );
}

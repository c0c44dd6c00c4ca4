/** When each row of the engine waited, prefilled, decoded, and waited for an environment. */
import { useEffect, useState } from "preact/hooks";
import type { View } from "./context";
import { useKeys, useLoaded } from "./hooks";
import { toHash } from "./query";
import { count, format } from "./text";
import type { Timeline } from "./types";

const HEIGHT = 22, LABEL = 150;

export function TimelineView(view: View) {
  const { source, run, description, parameters, go, version } = view;
  const phases = description.phases;
  const phase = phases.find((x) => x.name === parameters.phase) ?? phases[phases.length - 1];
  const step = parameters.step ?? String(phase?.last ?? 0);
  const [zoom, setZoom] = useState(1);
  const { data, error } = useLoaded(() => source.timeline(run, phase?.name ?? "", Number(step)), `${run} ${phase?.name} ${step}`, source.live ? version : 0);
  const show = (to: Record<string, string | number>) => go("timeline", { phase: phase?.name ?? "", step, ...to });
  const by = (d: number) => show({ step: Math.max(phase?.first ?? 0, Math.min(phase?.last ?? 0, Number(step) + d)) });
  useKeys({
    ArrowRight: () => by(1), ArrowLeft: () => by(-1), j: () => by(1), k: () => by(-1),
    "+": () => setZoom((x) => Math.min(64, x * 2)), "-": () => setZoom((x) => Math.max(1, x / 2)), Escape: () => go("episodes"),
  });
  if (!phase) return <main class="page"><p class="note">No episode is recorded yet.</p></main>;
  return (
    <main class="page wide">
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        {phases.length > 1 && (
          <label>Phase <select value={phase.name} onChange={(e) => show({ phase: e.currentTarget.value, step: "" })}>{phases.map((x) => <option>{x.name}</option>)}</select></label>
        )}
        <label>Step <input type="number" class="short" min={phase.first} max={phase.last} value={step} onChange={(e) => show({ step: e.currentTarget.value })} /></label>
        <button type="button" onClick={() => by(-1)} title="←">Previous</button>
        <button type="button" onClick={() => by(1)} title="→">Next</button>
        <label>Zoom <input type="range" min={0} max={6} value={Math.log2(zoom)} onInput={(e) => setZoom(2 ** Number(e.currentTarget.value))} /> {zoom}×</label>
      </form>
      {error && <p class="error" role="alert">{error}</p>}
      {data && (data.intervals.length ? <Chart timeline={data} zoom={zoom} open={(i) => go("episode", { id: data.episodes[i] ?? "" })} run={run} /> : <p class="note">No call of this step was measured.</p>)}
      {data && data.unmeasured > 0 && <p class="dim">{count(data.unmeasured, "call")} without times: scripted, or of a remote model.</p>}
      {data && data.shown < data.total && <p class="dim">The first {data.shown} of {data.total} episodes of the step.</p>}
      <p class="dim">Of recorded episodes: a row that is free here may have held another.</p>
    </main>
  );
}

/** Seconds of each kind, and their share of all rows' time. */
export function totals(timeline: Timeline): { kind: string; seconds: number; share: number }[] {
  const length = Math.max(0, ...timeline.intervals.map((x) => x[3]));
  return timeline.kinds.map((kind, i) => {
    const seconds = timeline.intervals.filter((x) => x[1] === i).reduce((sum, x) => sum + x[3] - x[2], 0);
    return { kind, seconds, share: seconds / (length * timeline.rows.length || 1) };
  });
}

function Chart({ timeline, zoom, open, run }: { timeline: Timeline; zoom: number; open: (episode: number) => void; run: number }) {
  const width = useWidth() * zoom;
  const length = Math.max(...timeline.intervals.map((x) => x[3])) || 1;
  const height = timeline.rows.length * HEIGHT;
  const x = (t: number) => (t / length) * width;
  const ticks = Array.from({ length: Math.round(width / 120) + 1 }, (_, i) => (i * length) / Math.round(width / 120));
  return (
    <>
      <ul class="kinds">
        {totals(timeline).map(({ kind, seconds, share }) => (
          <li><span class={`swatch ${kind}`} /> {kind}: {format(seconds)} s, {format(100 * share, 2)} % of the rows' time</li>
        ))}
      </ul>
      <div class="chart-with-labels">
        <ol class="labels" style={{ width: `${LABEL}px` }}>{timeline.rows.map((row) => <li style={{ height: `${HEIGHT}px` }}>{row}</li>)}</ol>
        <div class="scroller" tabIndex={0} role="img" aria-label={`Timeline of ${timeline.rows.length} rows over ${format(length)} seconds`}>
          <svg width={width} height={height + 20}>
            {timeline.rows.map((_, i) => <rect class={`lane ${i % 2 ? "odd" : ""}`} x={0} y={i * HEIGHT} width={width} height={HEIGHT} />)}
            {timeline.intervals.map(([row, kind, start, end, episode, turn]) => {
              const name = timeline.kinds[kind] ?? "";
              const waiting = name === "waiting";
              return (
                <rect class={name} x={x(start)} y={row * HEIGHT + (waiting ? HEIGHT - 5 : 3)} width={Math.max(0.6, x(end) - x(start))}
                  height={waiting ? 3 : HEIGHT - 9} onClick={() => open(episode)}>
                  <title>{`${name}, ${format(end - start)} s, from ${format(start)} s\n${timeline.episodes[episode]}, turn ${turn + 1}`}</title>
                </rect>
              );
            })}
            {ticks.map((t) => <text x={Math.min(x(t) + 2, width - 30)} y={height + 14}>{format(t)} s</text>)}
          </svg>
        </div>
      </div>
      <details>
        <summary>The same as a table</summary>
        <table>
          <thead><tr><th>Row</th><th>Kind</th><th>Start (s)</th><th>Seconds</th><th>Episode</th><th>Turn</th></tr></thead>
          <tbody>
            {timeline.intervals.slice(0, 500).map(([row, kind, start, end, episode, turn]) => (
              <tr><td>{timeline.rows[row]}</td><td>{timeline.kinds[kind]}</td><td>{format(start)}</td><td>{format(end - start)}</td>
                <td><a href={toHash("episode", { run, id: timeline.episodes[episode] ?? "" })}>{timeline.episodes[episode]}</a></td><td>{turn + 1}</td></tr>
            ))}
          </tbody>
        </table>
        {timeline.intervals.length > 500 && <p class="dim">The first 500 of {timeline.intervals.length}.</p>}
      </details>
    </>
  );
}

function useWidth(): number {
  const measure = () => Math.max(300, innerWidth - LABEL - 60);
  const [width, setWidth] = useState(measure);
  useEffect(() => {
    const changed = () => setWidth(measure());
    addEventListener("resize", changed);
    return () => removeEventListener("resize", changed);
  }, []);
  return width;
}

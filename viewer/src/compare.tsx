/** Runs side by side: what their configs differ in, and what came out. */
import type { View } from "./context";
import { useKeys, useLoaded } from "./hooks";
import { asText, count, format, visible } from "./text";
import type { Difference } from "./types";

export function Compare({ source, runs, version, go }: View) {
  const { data, error } = useLoaded(() => source.compare(), "compare", source.live ? version : 0);
  useKeys({ Escape: () => go("episodes") });
  return (
    <main class="page wide">
      {error && <p class="error" role="alert">{error}</p>}
      <h2>{runs.length === 1 ? "The run" : "Runs"}</h2>
      <div class="scroller"><table>
        <thead><tr><th scope="col">Run</th><th>Episodes</th><th>Damaged lines</th><th>Phases (steps)</th><th>Record</th></tr></thead>
        <tbody>
          {runs.map((run) => (
            <tr><th scope="row">{visible(run.name)}</th><td>{run.episodes.toLocaleString("en")}</td><td>{Object.entries(run.damaged).map(([file, n]) => `${visible(file)}: ${n}`).join(", ") || 0}</td>
              <td>{run.phases.map((x) => `${visible(x.name)} (${x.first}–${x.last})`).join(", ") || "–"}</td><td>{format(run.size / 1e6)} MB</td></tr>
          ))}
        </tbody>
      </table></div>
      {data && runs.length > 1 && <Table title="Where the configs differ" empty="The configs are equal." runs={runs.map((x) => x.name)} rows={data.config} />}
      {data && <Table title="Summary" empty="The run has no summary yet." runs={runs.map((x) => x.name)} rows={data.summary} />}
    </main>
  );
}

function Table({ title, empty, runs, rows }: { title: string; empty: string; runs: string[]; rows: Difference[] }) {
  if (!rows.length) return <><h2>{title}</h2><p class="note">{empty}</p></>;
  return (
    <>
      <h2>{title}</h2>
      <div class="scroller"><table>
        <caption>{count(rows.length, "value")}</caption>
        <thead><tr><th scope="col">Field</th>{runs.map((run) => <th scope="col">{visible(run)}</th>)}</tr></thead>
        <tbody>
          {rows.map(({ path, values }) => <tr><th scope="row"><code>{visible(path)}</code></th>{values.map((x) => <td>{typeof x === "number" ? format(x, 5) : visible(asText(x)) || "–"}</td>)}</tr>)}
        </tbody>
      </table></div>
    </>
  );
}

/** Where the page's data come from: the server, or the page itself. */
import { EMPTY, select } from "./query";
import type { Query } from "./query";
import type { Comparison, Description, Episode, Metrics, Row, Timeline, Window } from "./types";

export interface Source {
  live: boolean;
  runs(): Promise<Description[]>;
  episodes(run: number, query: Partial<Query>, offset: number, limit: number): Promise<Window>;
  episode(run: number, id: string): Promise<Episode>;
  timeline(run: number, phase: string, step: number): Promise<Timeline>;
  metrics(run: number): Promise<Metrics>;
  compare(): Promise<Comparison>;
}

interface ExportedRun {
  description: Description;
  rows: Row[];
  episodes: Record<string, Episode>;
  timelines: Record<string, Timeline>;
  metrics: Metrics;
}

export interface Exported {
  runs: ExportedRun[];
  compare: Comparison;
}

async function get<T>(path: string, parameters: Record<string, string | number>): Promise<T> {
  const search = new URLSearchParams(Object.entries(parameters).map(([k, v]) => [k, String(v)]));
  const response = await fetch(`/api/${path}?${search}`);
  const data = await response.json();
  if (!response.ok) throw new Error(data.error ?? response.statusText);
  return data as T;
}

export const serverSource: Source = {
  live: true,
  runs: async () => (await get<{ runs: Description[] }>("runs", {})).runs,
  episodes: (run, query, offset, limit) => get("episodes", { run, ...query, descending: query.descending || "0", offset, limit }),
  episode: (run, id) => get("episode", { run, id }),
  timeline: (run, phase, step) => get("timeline", { run, phase, step }),
  metrics: (run) => get("metrics", { run }),
  compare: () => get("compare", {}),
};

export function exportedSource(data: Exported): Source {
  const run = (i: number) => {
    const x = data.runs[i];
    if (!x) throw new Error("there is no such run");
    return x;
  };
  const present = <T>(x: T | undefined, what: string): T => {
    if (x === undefined) throw new Error(`${what} is not in this file`);
    return x;
  };
  return {
    live: false,
    runs: async () => data.runs.map((x) => ({ ...x.description, episodes: x.rows.length })),
    episodes: async (i, query, offset, limit) => {
      const rows = select(run(i).rows, { ...EMPTY, ...query });
      return { total: rows.length, offset, rows: rows.slice(offset, offset + limit) };
    },
    episode: async (i, id) => present(run(i).episodes[id], "the episode"),
    timeline: async (i, phase, step) => present(run(i).timelines[`${phase}/${step}`], "the timeline of this step"),
    metrics: async (i) => run(i).metrics,
    compare: async () => data.compare,
  };
}

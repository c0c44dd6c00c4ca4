/** The filters of the list; in an exported page they are applied here, else by the server. */
import { asText, toNumber } from "./text";
import type { Row } from "./types";

export interface Query {
  text: string;
  phase: string;
  stop_reason: string;
  agent: string;
  outcome: string;
  step_from: string;
  step_to: string;
  group: string;
  sort: string;
  descending: string;
}

export const EMPTY: Query = {
  text: "", phase: "", stop_reason: "", agent: "", outcome: "", step_from: "", step_to: "", group: "",
  sort: "step", descending: "1",
};

const OUTCOMES: Record<string, (row: Row) => boolean> = {
  "": () => true,
  success: (row) => toNumber(row.success) === 1,
  failure: (row) => toNumber(row.success) === 0,
  error: (row) => row.error !== "",
  damaged: (row) => row.damage !== "",
};

/** The rows that a query wants, sorted; equal ones keep their order, missing numbers come last. */
export function select(rows: Row[], query: Query): Row[] {
  const matches = rows.filter((row) => isWanted(row, query));
  const key = query.sort as keyof Row;
  const sign = query.descending === "1" ? -1 : 1;
  return matches
    .map((row, i) => ({ row, i }))
    .sort((a, b) => compare(a.row[key], b.row[key], sign) || a.i - b.i)
    .map((x) => x.row);
}

function isWanted(row: Row, query: Query): boolean {
  const step = toNumber(row.step);
  const wanted = query.text.toLowerCase();
  return (
    (!wanted || [row.task, row.agent, row.error, row.damage].some((x) => asText(x).toLowerCase().includes(wanted))) &&
    (!query.phase || row.phase === query.phase) &&
    (!query.stop_reason || row.stop_reason === query.stop_reason) &&
    (!query.agent || row.agent === query.agent) &&
    (!query.step_from || step >= Number(query.step_from)) &&
    (!query.step_to || step <= Number(query.step_to)) &&
    (!query.group || toNumber(row.group) === Number(query.group)) &&
    (OUTCOMES[query.outcome] ?? (() => true))(row)
  );
}

function compare(a: unknown, b: unknown, sign: number): number {
  if (typeof a === "string" && typeof b === "string") return a === b ? 0 : a < b ? -sign : sign;
  const x = toNumber(a), y = toNumber(b);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
  return x === y ? 0 : x < y ? -sign : sign;
}

/** "#/episode?run=0&id=x" -> its view and parameters. */
export function parseHash(hash: string): { view: string; parameters: Record<string, string> } {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { view: path || "episodes", parameters: Object.fromEntries(new URLSearchParams(search)) };
}

/** The inverse; empty parameters are left out. */
export function toHash(view: string, parameters: Record<string, string | number>): string {
  const filled = Object.entries(parameters).filter(([, value]) => value !== "");
  return `#/${view}?${new URLSearchParams(filled.map(([k, v]) => [k, String(v)]))}`;
}

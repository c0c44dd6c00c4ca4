/** The list of episodes: filters, sorting, and only the rows in sight. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { View } from "./context";
import { Filters } from "./filters";
import { useKeys } from "./hooks";
import { format, taskName, toNumber, visible } from "./text";
import type { Row } from "./types";

const ROW = 30; // pixels
const PAGE = 200; // rows of one request

interface Column {
  name: keyof Row;
  label: string;
  title: string;
  show: (row: Row) => preact.ComponentChildren;
  text?: boolean;
}

const number = (name: keyof Row, label: string, title: string): Column => ({
  name, label, title, show: (row) => format(row[name], 4),
});

const COLUMNS: Column[] = [
  number("step", "Step", "Training step"),
  number("group", "Group", "Members of a group share a task"),
  number("sample", "Sample", "Number in the group"),
  number("total_reward", "Return", "Undiscounted sum of the environment's rewards"),
  { name: "success", label: "Success", title: "As the environment reports it", show: (row) => <Success value={toNumber(row.success)} /> },
  { name: "task", label: "Task", title: "Environment and seed", text: true, show: (row) => row.damage ? <em>{visible(row.damage)}</em> : taskName(row.task) },
  number("turns", "Turns", "Actions of the agent"),
  number("tokens", "Tokens", "Sampled tokens"),
  number("trained", "Trained", "Tokens with a weight in the loss"),
  number("seconds", "Seconds", "From the first request to the last measured end"),
  { name: "stop_reason", label: "Stop", title: "Why the episode ended", text: true, show: (row) => visible(row.stop_reason) },
  { name: "error", label: "Error", title: "What failed", text: true, show: (row) => visible(row.error) },
];

export function Success({ value }: { value: number }) {
  if (Number.isNaN(value)) return <span class="dim">–</span>;
  return value === 1 ? <span class="good">✓ yes</span> : <span class="bad">✗ no</span>;
}

export function Episodes(view: View) {
  const { query, setQuery, go, setPosition, run } = view;
  const box = useRef<HTMLDivElement>(null);
  const filter = useRef<HTMLInputElement>(null);
  const [active, setActive] = useState(Math.max(0, view.position));
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const { total, rowAt, error } = useRows(view, range);
  const measure = () => {
    const at = box.current;
    if (at) setRange([Math.floor(at.scrollTop / ROW), Math.ceil((at.scrollTop + at.clientHeight) / ROW)]);
  };
  useLayoutEffect(() => {
    if (box.current) box.current.scrollTop = Math.max(0, active - 8) * ROW;
    measure();
    box.current?.focus({ preventScroll: true });
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const move = (to: number) => {
    const next = Math.max(0, Math.min((total ?? 1) - 1, to));
    setActive(next);
    scrollTo(box.current, next);
  };
  const open = (i: number, to = "episode") => {
    const row = rowAt(i);
    if (!row) return;
    setPosition(i);
    if (to === "episode") go("episode", { id: row.id });
    else go("group", { phase: row.phase, step: toNumber(row.step), group: toNumber(row.group) });
  };
  const page = () => Math.max(1, range[1] - range[0] - 2);
  useKeys({
    j: () => move(active + 1), ArrowDown: () => move(active + 1), k: () => move(active - 1), ArrowUp: () => move(active - 1),
    PageDown: () => move(active + page()), PageUp: () => move(active - page()), Home: () => move(0), End: () => move((total ?? 1) - 1),
    g: () => open(active, "group"), "/": () => filter.current?.focus(),
  });
  const change = (next: typeof query) => {
    setQuery(next);
    setActive(0);
    if (box.current) box.current.scrollTop = 0;
  };
  const sort = (name: string) =>
    change({ ...query, sort: name, descending: query.sort === name && query.descending === "1" ? "" : "1" });
  const shown = Array.from({ length: Math.max(0, Math.min(total ?? 0, range[1] + 10) - Math.max(0, range[0] - 10)) }, (_, i) => Math.max(0, range[0] - 10) + i);
  return (
    <main class="list">
      <Filters description={view.description} query={query} setQuery={change} field={filter} total={total} />
      {error && <p class="error" role="alert">{error}</p>}
      <div class="rows" ref={box} onScroll={measure} tabIndex={0} role="grid" aria-label="Episodes" aria-rowcount={(total ?? 0) + 1}
        aria-activedescendant={total ? `row-${active}` : undefined}
        onKeyDown={(e) => {
          if (e.key === "Enter" && e.target === box.current) open(active);
        }}>
        <div class="row head" role="row" aria-rowindex={1}>
          {COLUMNS.map((column) => (
            <div role="columnheader" class={`cell c-${column.name}`} aria-sort={sortState(query.sort === column.name, query.descending)}>
              <button title={column.title} onClick={() => sort(column.name)}>
                {column.label}{query.sort === column.name && <span aria-hidden="true">{query.descending ? " ▼" : " ▲"}</span>}
              </button>
            </div>
          ))}
        </div>
        <div class="sheet" style={{ height: `${(total ?? 0) * ROW}px` }}>
          {shown.map((i) => (
            <ListRow key={i} index={i} row={rowAt(i)} active={i === active} href={hrefOf(run, rowAt(i))}
              choose={() => { setActive(i); setPosition(i); }} />
          ))}
        </div>
        {total === 0 && <p class="note">{view.description.episodes ? "No episode matches the filters." : "No episode is recorded yet."}</p>}
      </div>
    </main>
  );
}

const sortState = (sorted: boolean, descending: string) => (sorted ? (descending ? "descending" : "ascending") : "none");

const hrefOf = (run: number, row?: Row) => (row ? `#/episode?${new URLSearchParams({ run: String(run), id: row.id })}` : "#");

function scrollTo(box: HTMLElement | null, index: number) {
  if (!box) return;
  const top = index * ROW, head = ROW;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW + head > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW + head - box.clientHeight;
}

interface RowProps {
  index: number;
  row?: Row;
  active: boolean;
  href: string;
  choose: () => void;
}

function ListRow({ index, row, active, href, choose }: RowProps) {
  const state = row?.damage ? "damaged" : row?.error ? "failed" : "";
  const open = () => {
    choose();
    if (row) location.hash = href;
  };
  return (
    <div class={`row ${active ? "active" : ""} ${state}`} role="row" id={`row-${index}`} aria-rowindex={index + 2}
      aria-selected={active} style={{ top: `${index * ROW}px` }} onClick={(e) => !(e.ctrlKey || e.metaKey) && open()}>
      {COLUMNS.map((column) => (
        <div role="gridcell" class={`cell c-${column.name} ${column.text ? "" : "num"}`} title={row && column.text ? visible(String(row[column.name] ?? "")) : undefined}>
          {!row ? "…" : column.name === "task" ? <a href={href} tabIndex={-1}>{column.show(row)}</a> : column.show(row)}
        </div>
      ))}
    </div>
  );
}

/** Rows by their place in the list; pages of them are fetched as they come into sight. */
function useRows({ source, run, query, version }: View, range: [number, number]) {
  const [, redraw] = useState(0);
  const [error, setError] = useState("");
  const [total, setTotal] = useState<number>();
  const pages = useRef(new Map<number, Row[]>());
  const key = JSON.stringify([run, query]);
  const latest = useRef(key);
  if (latest.current !== key) {
    latest.current = key;
    pages.current = new Map();
  }
  const first = Math.floor(Math.max(0, range[0] - 10) / PAGE), last = Math.floor((range[1] + 10) / PAGE);
  const fetchPage = async (page: number) => {
    try {
      const window = await source.episodes(run, query, page * PAGE, PAGE);
      if (latest.current !== key) return;
      pages.current.set(page, window.rows);
      setTotal(window.total);
      setError("");
    } catch (e) {
      setError((e as Error).message);
    }
    redraw((x) => x + 1);
  };
  useEffect(() => {
    for (let page = first; page <= last; page++) if (!pages.current.has(page)) fetchPage(page);
  }, [key, first, last]);
  useEffect(() => {
    for (const page of [...pages.current.keys()]) {
      if (page >= first && page <= last) fetchPage(page);
      else pages.current.delete(page);
    }
  }, [version]);
  return { total, error, rowAt: (i: number) => pages.current.get(Math.floor(i / PAGE))?.[i % PAGE] };
}

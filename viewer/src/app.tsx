/** The frame: header, views by the address, theme, help. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Compare } from "./compare";
import type { View } from "./context";
import { Curves } from "./curves-view";
import { EpisodeView } from "./episode";
import { Episodes } from "./episodes";
import { Group } from "./group";
import { useKeys } from "./hooks";
import { EMPTY, parseHash, toHash } from "./query";
import type { Query } from "./query";
import type { Source } from "./source";
import { count, damagedLines } from "./text";
import { TimelineView } from "./timeline";
import type { Description } from "./types";

const VIEWS = { episodes: "Episodes", curves: "Curves", timeline: "Timeline", compare: "Runs" };
const KEYS: [string, string][] = [
  ["/", "to the filter"],
  ["j or ↓, k or ↑", "next, previous episode of the list"],
  ["Page Up, Page Down, Home, End", "further through the list"],
  ["Enter", "open the episode"],
  ["g", "the group of the episode, side by side"],
  ["c", "color tokens by the next measure"],
  ["← →", "previous, next token, when the tokens have the focus"],
  ["Escape", "back to the list"],
  ["1 2 3 4", "episodes, curves, timeline, runs"],
  ["t", "light, dark, or as the system"],
  ["?", "this help"],
];
const POLL = 2000; // milliseconds between two looks at a run in progress

export function App({ source }: { source: Source }) {
  const [hash, setHash] = useState(location.hash);
  const [runs, setRuns] = useState<Description[]>();
  const [error, setError] = useState("");
  const [query, setQuery] = useState<Query>(EMPTY);
  const [position, setPosition] = useState(-1);
  const [theme, nextTheme] = useTheme();
  const help = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => poll(source, setRuns, setError), []);
  const { view, parameters } = parseHash(hash);
  const run = Math.min(Number(parameters.run) || 0, (runs?.length ?? 1) - 1);
  const go: View["go"] = (to, more = {}) => {
    location.hash = toHash(to, { run, ...more });
  };
  useKeys({
    "1": () => go("episodes"), "2": () => go("curves"), "3": () => go("timeline"), "4": () => go("compare"),
    t: nextTheme, "?": () => help.current?.showModal(),
  });
  const description = runs?.[run];
  return (
    <>
      <header class="top">
        <h1>agentrl-view</h1>
        <nav aria-label="Views">
          {Object.entries(VIEWS).map(([name, label]) => (
            <a href={toHash(name, { run })} aria-current={name === view ? "page" : undefined}>{label}</a>
          ))}
        </nav>
        {runs && runs.length > 1 && (
          <label>
            Run{" "}
            <select value={run} onChange={(e) => { setPosition(-1); location.hash = toHash("episodes", { run: e.currentTarget.value }); }}>
              {runs.map((x, i) => <option value={i}>{x.name}</option>)}
            </select>
          </label>
        )}
        {description && <Status run={description} live={source.live} />}
        <span class="space" />
        <button onClick={nextTheme} title="Light, dark, or as the system (t)">Theme: {theme}</button>
        <button onClick={() => help.current?.showModal()} title="Keys (?)" aria-label="Keys">?</button>
      </header>
      {error && <p class="error" role="alert">{error}</p>}
      {runs && description ? (
        <Main view={view} {...{ source, runs, run, description, parameters, query, setQuery, position, setPosition, go }}
          version={`${description.episodes} ${description.indexed}`} />
      ) : (
        !error && <p class="note" role="status">Reading the run …</p>
      )}
      <dialog ref={help} aria-label="Keys">
        <h2>Keys</h2>
        <dl class="keys">{KEYS.map(([key, what]) => <div><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
        <form method="dialog"><button autofocus>Close</button></form>
      </dialog>
    </>
  );
}

function Main({ view, ...context }: View & { view: string }) {
  switch (view) {
    case "curves": return <Curves {...context} />;
    case "timeline": return <TimelineView {...context} />;
    case "compare": return <Compare {...context} />;
    case "episode": return <EpisodeView {...context} />;
    case "group": return <Group {...context} />;
    default: return <Episodes {...context} />;
  }
}

function Status({ run, live }: { run: Description; live: boolean }) {
  const part = run.size ? run.indexed / run.size : 1;
  return (
    <span class="status" role="status">
      {runNote(run)}
      {live && part < 0.999 && <> · reading <progress value={part} aria-label="Read" /> {Math.floor(100 * part)} %</>}
      {!live && " · exported"}
    </span>
  );
}

const runNote = (run: Description) =>
  [`${run.name}: ${count(run.episodes, "episode")}`, ...damagedLines(run.damaged)].join(", ");

function poll(source: Source, setRuns: (x: Description[]) => void, setError: (x: string) => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined, ended = false;
  const look = async () => {
    try {
      setRuns(await source.runs());
      setError("");
    } catch (error) {
      setError(`The server does not answer (${(error as Error).message}): is agentrl-view still running?`);
    }
    if (source.live && !ended) timer = setTimeout(look, POLL);
  };
  look();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

const THEMES = ["system", "light", "dark"];

function useTheme(): [string, () => void] {
  const [theme, setTheme] = useState(() => stored() ?? "system");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch { /* a page without storage forgets it */ }
  }, [theme]);
  return [theme, () => setTheme((x) => THEMES[(THEMES.indexOf(x) + 1) % THEMES.length] ?? "system")];
}

function stored(): string | null {
  try {
    const theme = localStorage.getItem("theme");
    return theme && THEMES.includes(theme) ? theme : null;
  } catch {
    return null;
  }
}

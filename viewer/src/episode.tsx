/** One episode: its head, its turns, its tokens. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { View } from "./context";
import { MEASURE_NAMES, MEASURES, measured, scaleOf } from "./credit";
import type { Measure } from "./credit";
import { Success } from "./episodes";
import { useKeys, useLoaded } from "./hooks";
import { Text } from "./message";
import { toHash } from "./query";
import { asText, format, taskName, toNumber, visible } from "./text";
import { Legend, TokenPanel } from "./tokens";
import type { Focus } from "./tokens";
import { Transcript } from "./transcript";
import type { Episode, Trajectory } from "./types";

type Choice = Measure | "none";
const CHOICES: Choice[] = ["none", ...MEASURES];

let choice: Choice = "trained"; // outlives a step to the next episode

export function EpisodeView(view: View) {
  const { source, run, parameters, go, position } = view;
  const id = parameters.id ?? "";
  const { data, error } = useLoaded(() => source.episode(run, id), `${run} ${id}`);
  const next = useNeighbor(view);
  const toGroup = () => {
    const t = data?.trajectory;
    if (t) go("group", { phase: asText(t.phase), step: toNumber(t.step), group: toNumber(t.group) });
  };
  useKeys({
    Escape: () => go("episodes"), g: toGroup,
    j: () => next(1), k: () => next(-1),
  });
  return (
    <main class="page">
      <nav class="crumbs" aria-label="Episodes">
        <a href={toHash("episodes", { run })}>← List</a>
        {position >= 0 && <><button onClick={() => next(-1)} disabled={position === 0} title="k">Previous</button><button onClick={() => next(1)} title="j">Next</button></>}
        <span class="dim">{visible(id)}</span>
      </nav>
      {error && <p class="error" role="alert">{error}</p>}
      {!data && !error && <p class="note" role="status">Reading the episode …</p>}
      {data?.damage && <Damaged episode={data} />}
      {data?.trajectory && <Loaded key={id} episode={data} trajectory={data.trajectory} toGroup={toGroup} />}
    </main>
  );
}

/** Opens the episode so many places further in the list. */
function useNeighbor({ source, run, query, position, setPosition, go }: View) {
  return async (by: number) => {
    const to = position + by;
    if (position < 0 || to < 0) return;
    const row = (await source.episodes(run, query, to, 1)).rows[0];
    if (!row) return;
    setPosition(to);
    go("episode", { id: row.id });
  };
}

function Damaged({ episode }: { episode: Episode }) {
  return (
    <>
      <p class="error" role="alert">This line of the record is damaged: {visible(episode.damage ?? "")}.</p>
      <h2>The line{(episode.length ?? 0) > (episode.raw ?? "").length && `, the first ${(episode.raw ?? "").length} of ${episode.length} characters`}</h2>
      <Text text={episode.raw ?? ""} kind="text code" />
    </>
  );
}

function Loaded({ episode, trajectory, toGroup }: { episode: Episode; trajectory: Trajectory; toGroup: () => void }) {
  const [chosen, setChosen] = useState<Choice>(choice);
  const [focus, setFocus] = useState<Focus>();
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => heading.current?.focus(), []);
  const choose = (to: Choice) => {
    choice = to;
    setChosen(to);
  };
  useKeys({ c: () => choose(CHOICES[(CHOICES.indexOf(chosen) + 1) % CHOICES.length] ?? "none") });
  const scale = useMemo(
    () => (chosen === "none" ? undefined : scaleOf(trajectory.turns.flatMap((t) => t.calls.flatMap((c) => measured(c, chosen))), chosen)),
    [trajectory, chosen],
  );
  return (
    <>
      <h2 ref={heading} tabIndex={-1}>{taskName(asText(trajectory.task)) || "Episode"}</h2>
      <Head trajectory={trajectory} toGroup={toGroup} />
      <div class="toolbar">
        <label>
          Agent's text{" "}
          <select value={chosen} onChange={(e) => choose(e.currentTarget.value as Choice)} title="c">
            <option value="none">as messages</option>
            {MEASURES.map((x) => <option value={x}>tokens: {MEASURE_NAMES[x]}</option>)}
          </select>
        </label>
        {chosen !== "none" && scale && <Legend measure={chosen} scale={scale} />}
      </div>
      <div class={chosen === "none" ? "" : "with-panel"}>
        <div class="transcript">
          <Transcript trajectory={trajectory} pieces={episode.pieces}
            coloring={chosen !== "none" && scale ? { measure: chosen, scale, focus, setFocus, texts: episode.texts ?? {} } : undefined} />
          <End trajectory={trajectory} />
        </div>
        {chosen !== "none" && <TokenPanel focus={focus} />}
      </div>
    </>
  );
}

function Head({ trajectory: t, toGroup }: { trajectory: Trajectory; toGroup: () => void }) {
  const weights = t.turns.flatMap((turn) => turn.calls.flatMap((call) => measured(call, "trained")));
  const tokens = weights.length, trained = weights.filter((x) => x !== 0 && !Number.isNaN(x)).length;
  const items: [string, preact.ComponentChildren][] = [
    ["Return", <b>{format(t.return)}</b>],
    ["Success", <Success value={t.success == null ? NaN : Number(t.success)} />],
    ["Ended by", visible(asText(t.stop_reason))],
    ["Turns", t.turns.length],
    ["Tokens", `${tokens.toLocaleString("en")}, ${trained ? trained.toLocaleString("en") : "none"} trained`],
    ["Phase, step", `${visible(asText(t.phase))} ${format(t.step, 9)}`],
    ["Group, sample", <>{format(t.group, 9)}, {format(t.sample, 9)} <button onClick={toGroup} title="g">Side by side</button></>],
    ["Agent, seat", `${visible(asText(t.agent))} ${format(t.seat)}`],
    ["Seed", String(toNumber(t.seed))],
  ];
  if (t.parent != null) items.push(["Branched", `from sample ${format(t.parent, 9)} at turn ${toNumber(t.branch_turn) + 1}`]);
  return (
    <>
      <dl class="facts">{items.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      {t.error && <p class="error">Error: {visible(asText(t.error)).slice(0, 2000)}</p>}
      {t.tools && t.tools.length > 0 && (
        <details><summary>{t.tools.length === 1 ? "1 tool" : `${t.tools.length} tools`} offered</summary><Text text={JSON.stringify(t.tools, null, 2)} kind="text code" /></details>
      )}
    </>
  );
}

const End = ({ trajectory }: { trajectory: Trajectory }) => (
  <p class="end">Ended by <b>{visible(asText(trajectory.stop_reason))}</b> with a return of <b>{format(trajectory.return)}</b></p>
);

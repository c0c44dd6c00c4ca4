/** The members of a group, side by side. */
import { useState } from "preact/hooks";
import type { View } from "./context";
import { turnAdvantage, weightedMean } from "./credit";
import { Success } from "./episodes";
import { useKeys, useLoaded } from "./hooks";
import { MessageView } from "./message";
import { toHash } from "./query";
import { count, format, toNumber, visible } from "./text";
import { Transcript } from "./transcript";
import type { Episode, Row, Trajectory } from "./types";

const FEW = 8; // members that are read at first
const MANY = 1000;

interface Member {
  row: Row;
  episode: Episode;
}

export function Group(view: View) {
  const { source, run, parameters, go } = view;
  const [limit, setLimit] = useState(FEW);
  const { phase = "", step = "", group = "" } = parameters;
  useKeys({ Escape: () => go("episodes") });
  const query = { phase, step_from: step, step_to: step, group, sort: "sample", descending: "" };
  const load = async () => {
    const { rows, total } = await source.episodes(run, query, 0, limit);
    const members = await Promise.all(rows.map(async (row): Promise<Member> => ({ row, episode: await source.episode(run, row.id) })));
    return { total, members };
  };
  const { data, error } = useLoaded(load, JSON.stringify([run, query, limit]));
  const opening = sharedOpening(data?.members ?? []);
  return (
    <main class="page wide">
      <nav class="crumbs" aria-label="Episodes"><a href={toHash("episodes", { run })}>← List</a></nav>
      <h2>Group {group} of {visible(phase)} step {step}{data && `: ${count(data.total, "member")}`}</h2>
      {error && <p class="error" role="alert">{error}</p>}
      {!data && !error && <p class="note" role="status">Reading the group …</p>}
      {data && <Returns members={data.members} />}
      {opening && <details open><summary>The same opening</summary>{opening.map((message) => <MessageView message={message} />)}</details>}
      <div class="columns">
        {data?.members.map((member) => <Column key={member.row.id} member={member} run={run} opening={!opening} />)}
      </div>
      {data && data.total > data.members.length && <button onClick={() => setLimit(MANY)}>Show all {data.total}</button>}
    </main>
  );
}

/** The opening, where all members have the same. */
function sharedOpening(members: Member[]) {
  const openings = members.flatMap((x) => (x.episode.trajectory ? [x.episode.trajectory.opening] : []));
  const first = JSON.stringify(openings[0]);
  return openings.every((x) => JSON.stringify(x) === first) ? openings[0] : undefined;
}

function advantageOf(trajectory: Trajectory): number {
  const turns = trajectory.turns.map(turnAdvantage);
  return weightedMean(turns, turns.map((x) => (Number.isNaN(x) ? 0 : 1)));
}

/** The members' returns in one look. */
function Returns({ members }: { members: Member[] }) {
  const returns = members.map((x) => toNumber(x.row.total_reward)).filter(Number.isFinite);
  if (!returns.length) return null;
  const mean = returns.reduce((a, b) => a + b, 0) / returns.length;
  const spread = Math.sqrt(returns.reduce((a, b) => a + (b - mean) ** 2, 0) / returns.length);
  const solved = members.filter((x) => toNumber(x.row.success) === 1).length;
  return <p>Mean return {format(mean)}, standard deviation {format(spread)}, {solved} of {members.length} successful.</p>;
}

function Column({ member: { row, episode }, run, opening }: { member: Member; run: number; opening: boolean }) {
  const t = episode.trajectory;
  return (
    <section class="column" aria-label={`Sample ${format(row.sample, 9)}`}>
      <header>
        <h3><a href={toHash("episode", { run, id: row.id })}>Sample {format(row.sample, 9)}{toNumber(row.seat) > 0 && `, seat ${format(row.seat)}`}</a></h3>
        <dl class="credit">
          <div><dt>Return</dt><dd><b>{format(row.total_reward)}</b></dd></div>
          <div><dt>Advantage</dt><dd><b>{t ? format(advantageOf(t)) : "–"}</b></dd></div>
          <div><dt>Success</dt><dd><Success value={toNumber(row.success)} /></dd></div>
          <div><dt>Tokens</dt><dd>{format(row.tokens, 9)}</dd></div>
          <div><dt>Ended by</dt><dd>{visible(row.stop_reason)}</dd></div>
        </dl>
      </header>
      {t ? <Transcript trajectory={t} pieces={episode.pieces} opening={opening} /> : <p class="error">{visible(episode.damage ?? "")}</p>}
    </section>
  );
}

/** The turns of a trajectory: what the agent wrote, what came back, and the credit for it. */
import { format, prettyJson, toNumber, visible } from "./text";
import { returnsToGo, turnAdvantage, turnValue } from "./credit";
import type { Measure, Scale } from "./credit";
import { MessageView, Text } from "./message";
import { Tokens } from "./tokens";
import type { Focus } from "./tokens";
import type { Call, Num, Pieces, Trajectory, Turn } from "./types";

export interface Coloring {
  texts: Record<string, string>;
  measure: Measure;
  scale: Scale;
  focus?: Focus;
  setFocus: (focus: Focus) => void;
}

interface Props {
  trajectory: Trajectory;
  pieces?: Pieces[][];
  /** none: messages as text */
  coloring?: Coloring;
  opening?: boolean;
}

export function Transcript({ trajectory, pieces, coloring, opening = true }: Props) {
  const togo = returnsToGo(trajectory.turns);
  return (
    <>
      {opening && trajectory.opening?.map((message) => <MessageView message={message} />)}
      {trajectory.turns.map((turn, i) => (
        <TurnView key={i} turn={turn} index={i} pieces={pieces?.[i]} togo={togo[i] ?? NaN} coloring={coloring} />
      ))}
    </>
  );
}

interface TurnProps {
  turn: Turn;
  index: number;
  pieces?: Pieces[];
  togo: number;
  coloring?: Coloring;
}

function TurnView({ turn, index, pieces, togo, coloring }: TurnProps) {
  const last = turn.calls.length - 1;
  const name = (i: number) => `Turn ${index + 1}${last > 0 ? `, call ${i + 1}` : ""}`;
  const tokens = (i: number) => {
    const call = turn.calls[i];
    return call && coloring && <Tokens call={call} pieces={pieces?.[i]} name={name(i)} {...coloring} />;
  };
  return (
    <section class="turn" id={`turn-${index}`} aria-label={`Turn ${index + 1}`}>
      <h3>Turn {index + 1}</h3>
      {last > 0 && (
        <details>
          <summary>{last === 1 ? "1 call" : `${last} calls`} before the action</summary>
          {turn.calls.slice(0, last).map((call, i) => (
            <div><small>{name(i)}</small>{tokens(i) ?? <PromptText ids={call.action} pieces={pieces?.[i]?.action} />}</div>
          ))}
        </details>
      )}
      <MessageView message={turn.action} label={sourceOf(turn.calls[last])}>{tokens(last) || undefined}</MessageView>
      <Credit turn={turn} togo={togo} />
      {turn.observation?.map((message) => <MessageView message={message} />)}
      {turn.notes?.map((message) => <MessageView message={message} label="note" />)}
      <TurnDetails turn={turn} pieces={pieces} />
    </section>
  );
}

const sourceOf = (call?: Call) => (call?.source && call.source !== "sampled" ? visible(String(call.source)) : undefined);

/** The numbers under an action. */
function Credit({ turn, togo }: { turn: Turn; togo: number }) {
  const items: [string, string, string][] = [
    ["Reward", format(turn.reward), partsOf(turn.rewards)],
    ["Training reward", format(turn.training?.reward), partsOf(turn.training?.rewards)],
    ["Return to go", format(togo), ""],
    ["Value", format(turnValue(turn)), ""],
    ["Advantage", format(turnAdvantage(turn)), ""],
    ["Time", timeOf(turn), ""],
  ];
  return (
    <dl class="credit">
      {items.filter(([, value], i) => i === 0 || (value !== "–" && value !== "")).map(([name, value, parts]) => (
        <div><dt>{name}</dt><dd>{signed(value, name)}{parts && <small> {parts}</small>}</dd></div>
      ))}
    </dl>
  );
}

const signed = (value: string, name: string) =>
  name === "Time" ? value : <b class={name !== "Advantage" || value === "0" ? "" : value.startsWith("−") ? "bad" : "good"}>{value}</b>;

function partsOf(parts?: Record<string, Num>): string {
  const named = Object.entries(parts ?? {});
  return named.length ? `(${named.map(([name, x]) => `${visible(name)} ${format(x)}`).join(", ")})` : "";
}

/** "waited 0.1 s, prefill 0.03 s, decode 0.2 s (85 tokens/s), environment 0.3 s", of what was measured. */
export function timeOf(turn: Turn): string {
  const parts: string[] = [];
  const add = (name: string, seconds: number, more = "") => {
    if (Number.isFinite(seconds)) parts.push(`${name} ${format(seconds, 2)} s${more}`);
  };
  const sum = (from: "submitted" | "admitted" | "prefilled", to: "admitted" | "prefilled" | "finished") =>
    turn.calls.filter((call) => call.time).map((call) => toNumber(call.time?.[to]) - toNumber(call.time?.[from])).reduce((a, b) => a + b, turn.calls.some((call) => call.time) ? 0 : NaN);
  const decode = sum("prefilled", "finished");
  const tokens = turn.calls.reduce((n, call) => n + call.action.length, 0);
  add("waited", sum("submitted", "admitted"));
  add("prefill", sum("admitted", "prefilled"));
  add("decode", decode, decode > 0 ? ` (${format(tokens / decode, 2)} tokens/s)` : "");
  const [start, end] = turn.time?.environment ?? [];
  add("environment", toNumber(end) - toNumber(start));
  return parts.join(", ");
}

function TurnDetails({ turn, pieces }: { turn: Turn; pieces?: Pieces[] }) {
  return (
    <details class="more-of-turn">
      <summary>Prompt and info</summary>
      {turn.calls.map((call, i) => {
        const ids = call.added ?? call.prompt ?? [];
        return (
          <div>
            <small>
              Call {i + 1}: {call.parent == null ? `a prompt of ${ids.length} tokens` : `${ids.length} tokens after call ${call.parent}`}, {call.action.length} sampled, ended by {visible(String(call.finish_reason))}
            </small>
            <PromptText ids={ids} pieces={pieces?.[i]?.prompt} />
          </div>
        );
      })}
      {turn.info && Object.keys(turn.info).length > 0 && <Text text={prettyJson(turn.info)} kind="text code" />}
    </details>
  );
}

const PromptText = ({ ids, pieces }: { ids: number[]; pieces?: string[] | null }) => (
  <Text text={pieces ? pieces.join("") : ids.join(" ")} kind="text code" />
);

/** Tokens, colored by a number of theirs; one has the focus and shows all of its numbers. */
import { useEffect, useRef } from "preact/hooks";
import { intensity, measured, MEASURE_NAMES } from "./credit";
import type { Measure, Scale } from "./credit";
import { format, toNumber, tokenText, wholeToken } from "./text";
import type { Call, Pieces } from "./types";

export interface Focus {
  call: Call;
  texts: Record<string, string>;
  pieces?: Pieces;
  index: number;
  name: string;
}

interface Props {
  call: Call;
  pieces?: Pieces;
  /** of the most likely tokens, by id */
  texts: Record<string, string>;
  measure: Measure;
  scale: Scale;
  name: string;
  focus?: Focus;
  setFocus: (focus: Focus) => void;
}

export function Tokens({ call, pieces, texts, measure, scale, name, focus, setFocus }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const index = focus?.call === call ? focus.index : -1;
  const choose = (i: number) => i >= 0 && i < call.action.length && setFocus({ call, texts, pieces, index: i, name });
  useEffect(() => {
    const token = box.current?.children[index];
    token?.classList.add("focused");
    return () => token?.classList.remove("focused");
  }, [index, measure]);
  const values = measured(call, measure);
  const over = (e: MouseEvent) => {
    const i = (e.target as HTMLElement).dataset.i;
    if (i !== undefined) choose(Number(i));
  };
  const keys = (e: KeyboardEvent) => {
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: call.action.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    choose(Math.max(0, to));
  };
  return (
    <div class="tokens" ref={box} tabIndex={0} role="group" aria-roledescription="tokens" dir="ltr"
      aria-label={`${name}: ${call.action.length} tokens, colored by ${MEASURE_NAMES[measure]}. Arrow keys move through them.`}
      onClick={over} onMouseOver={over} onKeyDown={keys} onFocus={() => index < 0 && choose(0)}>
      {call.action.map((id, i) => {
        const a = intensity(values[i] ?? NaN, scale);
        return (
          <span key={i} data-i={i} class={tokenClass(values[i] ?? NaN, a)} style={{ "--a": Math.abs(a).toFixed(2) } as never}>
            {shownToken(pieces, i, id)}
          </span>
        );
      })}
    </div>
  );
}

const tokenClass = (value: number, a: number) =>
  `token ${Number.isNaN(value) ? "missing" : a < 0 ? "negative" : a > 0 ? "positive" : "zero"}`;

/** The piece of a token; of one that ends within a character, or without a tokenizer, its id. */
function shownToken(pieces: Pieces | undefined, i: number, id: number): string {
  const piece = pieces?.action?.[i];
  return piece === undefined ? `${id} ` : piece === "" ? "·" : tokenText(piece);
}

export function Legend({ measure, scale }: { measure: Measure; scale: Scale }) {
  if (scale.empty) return <span class="dim">not recorded for this episode</span>;
  return (
    <div class="legend" role="img" aria-label={`Colors from ${format(scale.low)} to ${format(scale.high)}`}>
      <span>{format(scale.low)}</span>
      <span class={`bar ${scale.diverging ? "diverging" : ""}`} />
      <span>{format(scale.high)}</span>
      <small>
        {scale.diverging ? "negative: dashed line; positive: line" : measure === "trained" ? "line: trained; none: weight 0" : "line: above the lowest"}; · : part of a character
      </small>
    </div>
  );
}

/** All numbers of the token in focus. */
export function TokenPanel({ focus }: { focus?: Focus }) {
  if (!focus) return <aside class="panel empty"><h3>Token</h3><p class="dim">Point at a token, or move through them with the arrow keys.</p></aside>;
  const { call, index, pieces } = focus;
  const training = call.training;
  const at = (x: unknown) => (Array.isArray(x) ? x[index] : undefined);
  const rows: [string, unknown][] = [
    ["Weight in the loss", at(training?.weight)],
    ["Advantage", at(training?.advantage)],
    ["Sampler log-prob", at(call.sampler_logp)],
    ["Learner log-prob", at(training?.logp)],
    ["Log-prob ratio", measured(call, "ratio")[index]],
    ["Reference log-prob", at(training?.ref_logp)],
    ["Importance weight", at(training?.importance_weight)],
    ["Entropy", at(call.entropy)],
    ["Value", at(training?.value)],
    ["Value target", at(training?.value_target)],
    ["Weights' version", at(call.version)],
  ];
  return (
    <aside class="panel">
      <h3>Token {index + 1} of {call.action.length}</h3>
      <p class="dim">{focus.name}</p>
      <div aria-live="polite">
        <p class="token-text">{pieces?.action ? wholeToken(pieces.action[index] ?? "") : "(no tokenizer)"}</p>
        <dl>
          <div><dt>Id</dt><dd>{call.action[index]}</dd></div>
          {rows.filter(([, x]) => x !== undefined && !Number.isNaN(toNumber(x))).map(([name, x]) => <div><dt>{name}</dt><dd>{format(x, 4)}</dd></div>)}
        </dl>
      </div>
      {!training && <p class="dim">The call was not given to an algorithm.</p>}
      <Alternatives call={call} index={index} texts={focus.texts} />
    </aside>
  );
}

function Alternatives({ call, index, texts }: { call: Call; index: number; texts: Record<string, string> }) {
  const ids = call.alternatives?.[index];
  if (!ids?.length) return null;
  return (
    <table>
      <caption>Most likely tokens (✓ sampled)</caption>
      <thead><tr><th>Token</th><th>Log-prob</th><th>Prob.</th></tr></thead>
      <tbody>
        {ids.map((id, i) => {
          const logp = toNumber(call.alternative_logp?.[index]?.[i]);
          return <tr><td>{id in texts ? wholeToken(texts[id] ?? "") : id}{id === call.action[index] && " ✓"}</td><td>{format(logp)}</td><td>{format(100 * Math.exp(logp))} %</td></tr>;
        })}
      </tbody>
    </table>
  );
}

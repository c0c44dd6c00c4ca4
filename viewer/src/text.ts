/** Numbers and texts as they are shown. */
import type { Num } from "./types";

/** NaN where it is absent. */
export function toNumber(x: Num | unknown): number {
  if (typeof x === "number") return x;
  if (x !== null && typeof x === "object" && "$float" in x) {
    const text = (x as { $float: unknown }).$float;
    return text === "inf" ? Infinity : text === "-inf" ? -Infinity : NaN;
  }
  return NaN;
}

/** Three significant digits, a real minus sign, "–" for what is absent. */
export function format(x: Num | unknown, digits = 3): string {
  const n = toNumber(x);
  if (Number.isNaN(n)) return "–";
  if (!Number.isFinite(n)) return n > 0 ? "∞" : "−∞";
  const short = Math.abs(n) >= 1000 && Number.isInteger(n) ? n.toLocaleString("en") : String(Number(n.toPrecision(digits)));
  return short.replace("-", "−");
}

export const count = (n: number, noun: string) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

/** {"metrics.jsonl": 2} -> ["2 damaged lines of metrics.jsonl"] */
export const damagedLines = (lines: Record<string, number>) =>
  Object.entries(lines).map(([file, n]) => `${count(n, "damaged line")} of ${visible(file)}`);

/** Characters that are invisible or turn the text around become their code points. */
export function visible(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
    (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

/** A token's text with its line feeds shown, each still followed by a break. */
export const tokenText = (piece: string) => visible(piece).replaceAll("\n", "⏎\n");

/** The same on one line, spaces shown; of a part of a character "·". */
export const wholeToken = (piece: string) => (piece === "" ? "·" : visible(piece).replaceAll("\n", "⏎").replaceAll(" ", "␣"));

/** A task's name without the module that registers its environment: "my.envs:Maze-v0#1" -> "Maze-v0#1". */
export const taskName = (task: string) => visible(task.replace(/^[\w.]+:(?=\w)/, ""));

/** Pixels that the page may show: of these kinds, inside the message itself. */
export function isImageData(url: unknown): url is string {
  return typeof url === "string" && /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(url);
}

const LINE = 60; // characters of JSON that stay on one line

/** A tool call's arguments: JSON is indented where it is long, other text stays as it is. */
export function prettyJson(text: unknown): string {
  let data: unknown = text;
  try {
    if (typeof text === "string") data = JSON.parse(text);
  } catch {
    return String(text);
  }
  const flat = (JSON.stringify(data) ?? "").replace(/("(?:[^"\\]|\\.)*")|([:,])/g, (_, string, mark) => string ?? `${mark} `);
  return flat.length <= LINE ? flat : (JSON.stringify(data, null, 2) ?? "");
}

/** A record's field as text, whatever it is. */
export const asText = (x: unknown): string => (typeof x === "string" ? x : x == null ? "" : JSON.stringify(x));

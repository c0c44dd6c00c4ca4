/** What is computed from a trajectory's numbers: returns-to-go, advantages of turns, token measures. */
import { toNumber } from "./text";
import type { Call, Num, Turn } from "./types";

/** A turn's own training reward and those of all later turns: [1, 0, 2] -> [3, 2, 2]. NaN where absent. */
export function returnsToGo(turns: Turn[]): number[] {
  let sum = 0;
  return turns.map((turn) => toNumber(turn.training?.reward)).reverse().map((x) => (sum += x)).reverse();
}

/** The mean of values, weighted by the absolute weights; NaN where all weights are 0. */
export function weightedMean(values: number[], weights: number[]): number {
  let sum = 0, total = 0;
  values.forEach((value, i) => {
    const weight = Math.abs(weights[i] ?? 0);
    if (weight > 0) {
      sum += weight * value;
      total += weight;
    }
  });
  return total > 0 ? sum / total : NaN;
}

const numbers = (x: Num[] | null | undefined): number[] => (Array.isArray(x) ? x.map(toNumber) : []);

/** A turn's advantage: the mean of its tokens', by their weights in the loss. */
export function turnAdvantage(turn: Turn): number {
  const calls = turn.calls.filter((call) => call.training);
  return weightedMean(
    calls.flatMap((call) => numbers(call.training?.advantage)),
    calls.flatMap((call) => numbers(call.training?.weight)),
  );
}

/** The critic's value of the turn's first token. */
export const turnValue = (turn: Turn): number =>
  toNumber(turn.calls.find((call) => call.training?.value)?.training?.value?.[0]);

export const MEASURES = ["trained", "ratio", "entropy", "advantage", "value", "logp"] as const;
export type Measure = (typeof MEASURES)[number];

export const MEASURE_NAMES: Record<Measure, string> = {
  trained: "Trained (weight in the loss)",
  ratio: "Log-prob ratio, learner − sampler",
  entropy: "Entropy (nats)",
  advantage: "Advantage",
  value: "Value",
  logp: "Sampler log-prob",
};

/** One number per action token; NaN where it was not recorded. */
export function measured(call: Call, measure: Measure): number[] {
  const training = call.training ?? {};
  switch (measure) {
    case "trained": return padded(numbers(training.weight), call, call.training ? NaN : 0);
    case "entropy": return padded(numbers(call.entropy), call);
    case "advantage": return padded(numbers(training.advantage), call);
    case "value": return padded(numbers(training.value), call);
    case "logp": return padded(numbers(call.sampler_logp), call);
    case "ratio": {
      const sampler = numbers(call.sampler_logp);
      return padded(numbers(training.logp).map((x, i) => x - (sampler[i] ?? NaN)), call);
    }
  }
}

const padded = (x: number[], call: Call, missing = NaN) => call.action.map((_, i) => x[i] ?? missing);

/** How a number becomes a color: from 0 to `high`, or from `low` over 0 to `high`. */
export interface Scale {
  low: number;
  high: number;
  /** whether the sign has a color of its own */
  diverging: boolean;
  /** no number was recorded */
  empty?: boolean;
}

const DIVERGING: Measure[] = ["ratio", "advantage"];

/** A scale of the numbers, symmetric where the sign matters; outliers beyond 98 % are cut. */
export function scaleOf(values: number[], measure: Measure): Scale {
  const finite = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (!finite.length) return { low: 0, high: 1, diverging: false, empty: true };
  const at = (q: number) => finite[Math.min(finite.length - 1, Math.floor(q * finite.length))] ?? 0;
  if (DIVERGING.includes(measure)) {
    const most = finite.map(Math.abs).sort((a, b) => a - b);
    const high = most[Math.min(most.length - 1, Math.floor(0.98 * most.length))] || 1;
    return { low: -high, high, diverging: true };
  }
  if (measure === "trained") return { low: 0, high: at(1) || 1, diverging: false };
  const low = measure === "entropy" ? 0 : at(0.02);
  return { low, high: at(0.98) > low ? at(0.98) : low + 1, diverging: false };
}

/** From 0 (no color) to 1, with the sign where the scale has one. */
export function intensity(value: number, scale: Scale): number {
  if (Number.isNaN(value)) return 0;
  if (scale.diverging) return Math.max(-1, Math.min(1, value / scale.high));
  return Math.max(0, Math.min(1, (value - scale.low) / (scale.high - scale.low)));
}

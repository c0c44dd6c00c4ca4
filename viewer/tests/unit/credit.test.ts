import { expect, test } from "vitest";
import { intensity, measured, returnsToGo, scaleOf, turnAdvantage, weightedMean } from "../../src/credit";
import type { Call, Turn } from "../../src/types";

const call = (more: Partial<Call>): Call => ({ action: [7, 8, 9], ...more });
const turn = (reward: number | undefined, calls: Call[] = []): Turn => ({
  action: {}, calls, ...(reward === undefined ? {} : { training: { reward } }),
});

test("returns-to-go are sums of this and later training rewards", () => {
  expect(returnsToGo([turn(1), turn(0), turn(2)])).toEqual([3, 2, 2]);
  expect(returnsToGo([turn(1), turn(undefined), turn(2)])).toEqual([NaN, NaN, 2]);
});

test("a turn's advantage is the weighted mean of its tokens'", () => {
  const first = call({ training: { weight: [1, 0, 3], advantage: [2, 100, 4] } });
  const second = call({ training: { weight: [4, 0, 0], advantage: [-1, 0, 0] } });
  expect(turnAdvantage(turn(0, [first]))).toBe(3.5);
  expect(turnAdvantage(turn(0, [first, second, call({})]))).toBe((2 + 12 - 4) / 8);
  expect(turnAdvantage(turn(0, [call({})]))).toBeNaN();
  expect(weightedMean([1], [0])).toBeNaN();
});

test("measures have one number per token", () => {
  const x = call({ sampler_logp: [-1, -2, -3], entropy: null, training: { logp: [-1.5, -2, { $float: "nan" }], weight: [1, 0, 1] } });
  expect(measured(x, "ratio")).toEqual([-0.5, 0, NaN]);
  expect(measured(x, "entropy")).toEqual([NaN, NaN, NaN]);
  expect(measured(x, "trained")).toEqual([1, 0, 1]);
  expect(measured(call({}), "trained")).toEqual([0, 0, 0]); // filtered out: nothing was trained
  expect(measured(call({}), "ratio")).toEqual([NaN, NaN, NaN]);
});

test("scales are symmetric where the sign matters, and cut outliers", () => {
  expect(scaleOf([-1, 3], "advantage")).toEqual({ low: -3, high: 3, diverging: true });
  expect(scaleOf([0, 0], "advantage")).toEqual({ low: -1, high: 1, diverging: true });
  expect(scaleOf([...Array(99).fill(1), 1000], "entropy").high).toBe(1);
  expect(scaleOf([], "entropy")).toEqual({ low: 0, high: 1, diverging: false, empty: true });
});

test("a color's strength is the number's place on the scale", () => {
  expect([-6, -1.5, 0, 3, NaN].map((x) => intensity(x, { low: -3, high: 3, diverging: true }))).toEqual([-1, -0.5, 0, 1, 0]);
  expect([0, 2, 3, 9].map((x) => intensity(x, { low: 1, high: 3, diverging: false }))).toEqual([0, 0.5, 1, 1]);
});

import { expect, test } from "vitest";
import { extentOf, nearest, pathOf, smooth } from "../../src/curves";
import { totals } from "../../src/timeline";

test("smoothing is corrected for its start", () => {
  expect(smooth([1, 1, 1], 0.9).map((x) => Number(x.toFixed(9)))).toEqual([1, 1, 1]);
  expect(smooth([0, 3], 0.5)).toEqual([0, 2]); // (0.25 * 0 + 0.5 * 3) / 0.75
  expect(smooth([4, 5], 0)).toEqual([4, 5]);
});

test("an extent is never empty", () => {
  expect(extentOf([{ steps: [2, 4], values: [1, -1] }])).toEqual({ x: [2, 4], y: [-1, 1] });
  expect(extentOf([{ steps: [3], values: [5] }])).toEqual({ x: [2.5, 3.5], y: [4.5, 5.5] });
  expect(extentOf([])).toEqual({ x: [0, 1], y: [0, 1] });
});

test("a path runs from the box's lower left to its upper right", () => {
  const curve = { steps: [0, 5, 10], values: [0, 1, 2] };
  expect(pathOf(curve, extentOf([curve]), 100, 50)).toBe("M0.0 50.0L50.0 25.0L100.0 0.0");
  expect(nearest(curve.steps, 7.4)).toBe(1);
  expect(nearest(curve.steps, 7.6)).toBe(2);
});

test("the timeline's sums are shares of all rows' time", () => {
  const timeline = {
    rows: ["a", "b"], kinds: ["waiting", "decode"], episodes: ["e"], unmeasured: 0, shown: 1, total: 1,
    intervals: [[0, 1, 0, 4, 0, 0], [1, 1, 0, 2, 0, 0], [1, 0, 2, 3, 0, 1]] as [number, number, number, number, number, number][],
  };
  expect(totals(timeline)).toEqual([{ kind: "waiting", seconds: 1, share: 1 / 8 }, { kind: "decode", seconds: 6, share: 6 / 8 }]);
});

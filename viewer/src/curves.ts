/** Curves as paths. */
import type { Curve } from "./types";

export interface Extent {
  x: [number, number];
  y: [number, number];
}

/** The exponential moving average: s_t = a s_{t-1} + (1 - a) y_t, corrected for its start. */
export function smooth(values: number[], a: number): number[] {
  let sum = 0, norm = 0;
  return values.map((y) => {
    sum = a * sum + (1 - a) * y;
    norm = a * norm + (1 - a);
    return sum / norm;
  });
}

/** What all curves span; never empty. */
export function extentOf(curves: Curve[]): Extent {
  const span = (values: number[]): [number, number] => {
    let low = Infinity, high = -Infinity;
    for (const v of values) {
      if (v < low) low = v;
      if (v > high) high = v;
    }
    return low < high ? [low, high] : Number.isFinite(low) ? [low - 0.5, low + 0.5] : [0, 1];
  };
  return { x: span(curves.flatMap((c) => c.steps)), y: span(curves.flatMap((c) => c.values)) };
}

/** The path of a curve in a box of that size. */
export function pathOf(curve: Curve, extent: Extent, width: number, height: number): string {
  const [x0, x1] = extent.x, [y0, y1] = extent.y;
  return curve.steps
    .map((step, i) => {
      const x = ((step - x0) / (x1 - x0)) * width;
      const y = height - (((curve.values[i] ?? NaN) - y0) / (y1 - y0)) * height;
      return `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    })
    .join("");
}

/** The index of the step nearest to one. */
export function nearest(steps: number[], step: number): number {
  let best = 0;
  steps.forEach((s, i) => {
    if (Math.abs(s - step) < Math.abs((steps[best] ?? 0) - step)) best = i;
  });
  return best;
}

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { EMPTY, parseHash, select, toHash } from "../../src/query";
import { exportedSource } from "../../src/source";
import type { Row } from "../../src/types";

// The server's filters are tested by the same table.
const table = JSON.parse(readFileSync(new URL("../../../tests/support/viewer_queries.json", import.meta.url), "utf8"));
const rows: Row[] = table.rows;

describe("the rows of a query", () => {
  for (const { query, rows: wanted } of table.cases) {
    test(JSON.stringify(query), () => {
      expect(select(rows, { ...EMPTY, ...query }).map((row) => rows.indexOf(row))).toEqual(wanted);
    });
  }
});

test("addresses hold any text", () => {
  const parameters = { run: "1", id: "0-000000/17", text: "a&b=c#d %?ü" };
  expect(parseHash(toHash("episode", parameters))).toEqual({ view: "episode", parameters });
  expect(parseHash("")).toEqual({ view: "episodes", parameters: {} });
  expect(toHash("group", { phase: "", step: 0 })).toBe("#/group?step=0");
});

test("an exported page names what it does not hold", async () => {
  const source = exportedSource({ runs: [{ description: {} as never, rows, episodes: {}, timelines: {}, metrics: {} }], compare: { config: [], summary: [] } });
  expect((await source.episodes(0, { text: "maze" }, 1, 1)).rows).toEqual([rows[0]]);
  await expect(source.episode(0, "0-0/0")).rejects.toThrow("the episode is not in this file");
  await expect(source.timeline(0, "rl", 9)).rejects.toThrow("not in this file");
});

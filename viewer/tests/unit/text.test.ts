import { expect, test } from "vitest";
import { damagedLines, format, isImageData, prettyJson, taskName, toNumber, tokenText, visible, wholeToken } from "../../src/text";

test("numbers are short, with a sign of their own", () => {
  expect([0.123456, -2, 1234, 1e-7, null, { $float: "nan" }, { $float: "-inf" }].map((x) => format(x))).toEqual(
    ["0.123", "−2", "1,234", "1e−7", "–", "–", "−∞"],
  );
});

test("what is no number is none", () => {
  for (const x of [null, undefined, "1", true, {}, [1], { $float: "x" }]) expect(toNumber(x)).toBeNaN();
});

test("invisible characters and lone surrogates are shown, others stay", () => {
  expect(visible("a\u202eb\u0000\u2028")).toBe("a⟨U+202E⟩b⟨U+0000⟩⟨U+2028⟩");
  expect(visible("\ud800x\udc00")).toBe("⟨U+D800⟩x⟨U+DC00⟩");
  expect(visible("日本 🙂 👩‍💻 é\n\t")).toBe("日本 🙂 👩‍💻 é\n\t");
  expect(tokenText("a\n")).toBe("a⏎\n");
  expect([" a\n", ""].map(wholeToken)).toEqual(["␣a⏎", "·"]);
});

test("damaged lines are counted by file", () => {
  expect(damagedLines({})).toEqual([]);
  expect(damagedLines({ "metrics.jsonl": 1, "trajectories/0-000000.jsonl": 1200 })).toEqual(
    ["1 damaged line of metrics.jsonl", "1,200 damaged lines of trajectories/0-000000.jsonl"],
  );
});

test("a task is shown without the module of its environment", () => {
  expect(["my.envs:mine/Maze-v0#1", "mine/Maze-v0#1", "javascript: x", "a: b"].map(taskName)).toEqual(
    ["mine/Maze-v0#1", "mine/Maze-v0#1", "javascript: x", "a: b"],
  );
});

test("only pixels inside the record are images", () => {
  expect(isImageData("data:image/png;base64,AAAA==")).toBe(true);
  for (const url of ["https://x/y.png", "data:text/html;base64,AAAA", "data:image/svg+xml;base64,AAAA", "data:image/png,<svg>", "javascript:x", null, 5]) {
    expect(isImageData(url)).toBe(false);
  }
});

test("short JSON is one line, long JSON is indented, other text stays", () => {
  expect(prettyJson('{"a":1,"b":"x:y,z"}')).toBe('{"a": 1, "b": "x:y,z"}');
  expect(prettyJson(JSON.stringify({ a: "x".repeat(80) }))).toBe(`{\n  "a": "${"x".repeat(80)}"\n}`);
  expect(prettyJson("{broken")).toBe("{broken");
});

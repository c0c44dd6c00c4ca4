/** The filters above the list. */
import type { RefObject } from "preact";
import { EMPTY } from "./query";
import type { Query } from "./query";
import { count, visible } from "./text";
import type { Description } from "./types";

interface Props {
  description: Description;
  query: Query;
  setQuery: (query: Query) => void;
  field: RefObject<HTMLInputElement | null>;
  total?: number;
}

export function Filters({ description, query, setQuery, field, total }: Props) {
  const set = (name: keyof Query) => (e: { currentTarget: { value: string } }) => setQuery({ ...query, [name]: e.currentTarget.value });
  const choice = (name: keyof Query, label: string, values: string[]) => (
    <label>
      {label}{" "}
      <select value={query[name]} onChange={set(name)}>
        <option value="">any</option>
        {values.map((value) => <option value={value}>{visible(value)}</option>)}
      </select>
    </label>
  );
  const bound = (name: keyof Query, label: string) => (
    <label>
      {label} <input type="number" class="short" value={query[name]} onInput={set(name)} />
    </label>
  );
  const filtered = JSON.stringify({ ...query, sort: "", descending: "" }) !== JSON.stringify({ ...EMPTY, sort: "", descending: "" });
  return (
    <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
      <label>
        Filter <input type="search" ref={field} value={query.text} placeholder="task, agent or error" onInput={set("text")} />
      </label>
      {description.phases.length > 1 && choice("phase", "Phase", description.phases.map((x) => x.name))}
      {description.agent.length > 1 && choice("agent", "Agent", description.agent)}
      {choice("outcome", "Outcome", ["success", "failure", "error", "damaged"])}
      {choice("stop_reason", "Stop", description.stop_reason)}
      {bound("step_from", "Steps from")}
      {bound("step_to", "to")}
      {bound("group", "Group")}
      {filtered && <button type="button" onClick={() => setQuery({ ...EMPTY, sort: query.sort, descending: query.descending })}>Clear</button>}
      <output>{total === undefined ? "" : count(total, "episode")}</output>
    </form>
  );
}

/** What every view gets. */
import type { Query } from "./query";
import type { Source } from "./source";
import type { Description } from "./types";

export interface View {
  source: Source;
  runs: Description[];
  run: number;
  description: Description;
  parameters: Record<string, string>;
  /** the list's filters, which outlive a look at an episode */
  query: Query;
  setQuery: (query: Query) => void;
  /** where in the list the episode is that was opened from it; -1: from elsewhere */
  position: number;
  setPosition: (position: number) => void;
  /** changes when the run folder does */
  version: string;
  go: (view: string, parameters?: Record<string, string | number>) => void;
}

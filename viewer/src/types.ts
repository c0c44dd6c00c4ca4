/** The JSON of a run's record and of the server. */

/** A number; one that is not finite is an object, one that is absent null. */
export type Num = number | { $float: string } | null | undefined;

export interface ContentPart {
  type?: string;
  text?: string;
  image_url?: { url?: string };
  /** an animated image */
  video_url?: { url?: string };
}

export interface ToolCall {
  id?: string;
  function?: { name?: string; arguments?: string };
  error?: string;
}

export interface Message {
  role?: string;
  content?: string | ContentPart[] | null;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  name?: string;
  thinking?: string;
  raw_text?: string;
}

export interface CallTraining {
  weight?: Num[];
  advantage?: Num[];
  logp?: Num[];
  ref_logp?: Num[];
  value?: Num[];
  value_target?: Num[];
  importance_weight?: Num[];
}

export interface CallTime {
  submitted?: Num;
  admitted?: Num;
  prefilled?: Num;
  finished?: Num;
  slot?: Num;
}

export interface Call {
  parent?: number | null;
  added?: number[];
  prompt?: number[];
  action: number[];
  sampler_logp?: Num[];
  version?: Num[];
  entropy?: Num[] | null;
  alternatives?: number[][] | null;
  alternative_logp?: Num[][] | null;
  finish_reason?: string;
  source?: string;
  time?: CallTime;
  training?: CallTraining;
}

export interface Turn {
  action: Message;
  observation?: Message[];
  reward?: Num;
  rewards?: Record<string, Num>;
  info?: Record<string, unknown>;
  notes?: Message[];
  time?: { environment?: Num[] };
  training?: { reward?: Num; rewards?: Record<string, Num> };
  calls: Call[];
}

export interface Trajectory {
  phase?: string;
  step?: Num;
  task?: string;
  group?: Num;
  sample?: Num;
  seat?: Num;
  seed?: Num;
  agent?: string;
  success?: boolean | null;
  stop_reason?: string;
  error?: string | null;
  parent?: Num;
  branch_turn?: Num;
  return?: Num;
  tools?: unknown[];
  opening?: Message[];
  turns: Turn[];
}

export interface Pieces {
  prompt: string[] | null;
  action: string[] | null;
}

export interface Episode {
  id: string;
  trajectory?: Trajectory;
  pieces?: Pieces[][];
  /** of the most likely tokens, by id */
  texts?: Record<string, string>;
  damage?: string;
  raw?: string;
  length?: number;
}

export interface Row {
  id: string;
  step: Num;
  group: Num;
  sample: Num;
  seat: Num;
  total_reward: Num;
  turns: Num;
  tokens: Num;
  trained: Num;
  seconds: Num;
  success: Num;
  phase: string;
  task: string;
  agent: string;
  stop_reason: string;
  error: string;
  damage: string;
}

export interface Window {
  total: number;
  offset: number;
  rows: Row[];
}

export interface Phase {
  name: string;
  first: number;
  last: number;
  count: number;
}

export interface Description {
  name: string;
  episodes: number;
  /** damaged lines by file */
  damaged: Record<string, number>;
  indexed: number;
  size: number;
  phases: Phase[];
  agent: string[];
  stop_reason: string[];
}

export interface Curve {
  steps: number[];
  values: number[];
}

export type Metrics = Record<string, Record<string, Curve>>;

export interface Timeline {
  rows: string[];
  kinds: string[];
  episodes: string[];
  unmeasured: number;
  shown: number;
  total: number;
  /** row, kind, start and end in seconds, episode, turn */
  intervals: [number, number, number, number, number, number][];
}

export interface Difference {
  path: string;
  values: unknown[];
}

export interface Comparison {
  config: Difference[];
  summary: Difference[];
}

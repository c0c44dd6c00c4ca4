/** State that comes from a source, and keys. */
import { useEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  data?: T;
  error?: string;
}

/** What a promise brings; the last data stay until the next arrive. A new key forgets them. */
export function useLoaded<T>(load: () => Promise<T>, key: string, version: unknown = 0): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { key?: string }>({});
  useEffect(() => {
    let current = true;
    load().then(
      (data) => current && setState({ data, key }),
      (error: Error) => current && setState({ error: error.message, key }),
    );
    return () => {
      current = false;
    };
  }, [key, version]);
  return state.key === key ? state : {};
}

const isField = (x: EventTarget | null) => x instanceof HTMLElement && x.matches("input, select, textarea");

/** Keys of the whole page; those typed into a field are left alone, but Escape leaves it. */
export function useKeys(keys: Record<string, () => void>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (document.querySelector("dialog[open]")) return;
      if (isField(event.target)) {
        if (event.key === "Escape") (event.target as HTMLElement).blur();
        return;
      }
      const action = latest.current[event.key];
      if (action) {
        event.preventDefault();
        action();
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

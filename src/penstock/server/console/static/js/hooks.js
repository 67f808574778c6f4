// State that comes from the server.
import { useCallback, useEffect, useRef, useState } from "./lib.js";

// What `load(signal)` gives: {value, error, loading, reload}. Loaded again when `deps` change, and every `everyMs`
// while the page is seen.
export function useLoad(load, deps, everyMs = 0) {
  const [state, set] = useState({ value: undefined, error: null, loading: true });
  const turn = useRef(0);
  const running = useRef(null);
  const run = useCallback(async (fresh) => {
    const mine = ++turn.current;
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    if (fresh) set({ value: undefined, error: null, loading: true });
    try {
      const value = await load(controller.signal);
      if (mine === turn.current) set({ value, error: null, loading: false });
    } catch (error) {
      if (mine === turn.current && error.name !== "AbortError") {
        set((before) => ({ value: before.value, error, loading: false }));
      }
    }
  }, deps);
  useEffect(() => {
    run(true);
    return () => {
      turn.current += 1;
      running.current?.abort();
    };
  }, [run]);
  useEffect(() => {
    if (!everyMs) return undefined;
    let timer;
    let ended = false;
    const again = async () => {
      if (!document.hidden) await run(false);
      if (!ended) timer = setTimeout(again, everyMs);
    };
    timer = setTimeout(again, everyMs);
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [run, everyMs]);
  return { ...state, reload: () => run(false) };
}

// The queries of the aggregator's API, with the user's token; it is kept until the tab closes, and sent nowhere else.

import { useEffect, useState } from "./vendor/htm-preact.js";

const KEY = "antrea-flows-token";

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function signIn(value) {
  sessionStorage.setItem(KEY, value);
}

/** `why` is shown beside the form for the next token. */
export function signOut(why = "") {
  sessionStorage.removeItem(KEY);
  dispatchEvent(new CustomEvent("signed-out", { detail: why }));
}

/** The answer of a query; throws an Error with the server's words. */
export async function ask(path, parameters, signal) {
  const query = new URLSearchParams(parameters);
  const headers = { Authorization: `Bearer ${token()}` };
  const answer = await fetch(`../${path}?${query}`, { headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.status === 401) {
    const why = "The token is not, or no longer, one of this cluster.";
    signOut(why);
    throw new Error(why);
  }
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

async function reason(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).message || text;
  } catch {
    return text || `HTTP ${answer.status}`;
  }
}

/** {answer, error, busy} of a query, asked again `every` so many milliseconds unless that is 0. */
export function useAnswer(path, parameters, every) {
  const [state, set] = useState({ busy: true });
  const key = `${path} ${JSON.stringify(parameters)}`;
  useEffect(() => {
    const ended = new AbortController();
    let timer;
    async function load() {
      try {
        const answer = await ask(path, parameters, ended.signal);
        if (!ended.signal.aborted) set({ answer });
      } catch (error) {
        if (!ended.signal.aborted) set(before => ({ answer: before.answer, error: error.message }));
      }
      if (every && !ended.signal.aborted) timer = setTimeout(again, every);
    }
    function again() {
      if (document.hidden) timer = setTimeout(again, every);
      else load();
    }
    set({ busy: true });
    load();
    return () => { ended.abort(); clearTimeout(timer); };
  }, [key, every]);
  return state;
}

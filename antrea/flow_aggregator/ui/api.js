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

/** The answer of a query as JSON; `body` is posted. Throws an Error with the server's words. */
export async function ask(path, parameters, signal, body) {
  return (await request(path, parameters, signal, {}, body)).json();
}

async function request(path, parameters, signal, more = {}, body = undefined) {
  const query = new URLSearchParams(parameters);
  const headers = { Authorization: `Bearer ${token()}`, ...more };
  const how = { headers, signal, body, method: body === undefined ? "GET" : "POST", cache: "no-store", credentials: "omit" };
  const answer = await fetch(`../${path}?${query}`, how);
  if (answer.status === 401) {
    const why = "The token is not, or no longer, one of this cluster.";
    signOut(why);
    throw new Error(why);
  }
  if (!answer.ok) throw new Error(await reason(answer));
  return answer;
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

/** A reader of the answer's text as it comes. */
export async function stream(path, parameters, signal, headers) {
  const answer = await request(path, parameters, signal, headers);
  return answer.body.pipeThrough(new TextDecoderStream()).getReader();
}

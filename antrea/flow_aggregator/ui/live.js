// Records as they come: server-sent events, read by fetch, since EventSource sends no token.

import { useEffect, useState } from "./vendor/htm-preact.js";
import { stream } from "./api.js";

// milliseconds before the next try, at first and at most
const PAUSE = 500, LONGEST = 10000;

const pause = (time, signal) => new Promise(done => {
  setTimeout(done, time);
  signal.addEventListener("abort", done);
});

/** Events of a text as {id, data}, and what is left of it. */
export function events(text) {
  const parts = text.split("\n\n");
  const rest = parts.pop();
  const field = (part, name) => part.split("\n").filter(line => line.startsWith(`${name}:`))
    .map(line => line.slice(name.length + 1).trim()).join("\n");
  const found = parts.map(part => ({ id: field(part, "id"), data: field(part, "data") })).filter(one => one.data);
  return { found, rest };
}

async function follow(parameters, signal, receive, state) {
  let last = "", wait = PAUSE;
  while (!signal.aborted) {
    try {
      const reader = await stream("flows/live", parameters, signal, last ? { "Last-Event-ID": last } : {});
      for (let text = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const { found, rest } = events(text + value);
        text = rest;
        for (const event of found) {
          last = event.id || last;
          receive(JSON.parse(event.data));
        }
        wait = PAUSE;
        state({ on: true });
      }
    } catch (error) {
      if (!signal.aborted) state({ error: error.message });
      wait = Math.min(2 * wait, LONGEST);
    }
    if (!signal.aborted) await pause(wait, signal);
  }
}

/** {on, error}; `receive` is called with each event while `active`. */
export function useLive(parameters, active, receive) {
  const [state, setState] = useState({});
  const key = JSON.stringify(parameters);
  useEffect(() => {
    setState({});
    if (!active) return undefined;
    const ended = new AbortController();
    follow(parameters, ended.signal, receive, setState);
    return () => ended.abort();
  }, [key, active]);
  return state;
}

// What policies do with a packet of a connection as they are now, and the smallest change: the answer of `antctl explain`.

import { html, useState } from "./vendor/htm-preact.js";
import { ask } from "./api.js";
import { only } from "./place.js";
import { shown } from "./text.js";

function Half({ half }) {
  const lost = half.lost ?? [];
  return html`<li><b>${half.direction}</b>: <span class=${half.verdict === "Allow" ? "" : "denied-text"}>${half.verdict}</span>, ${shown(half.sentence)}
    ${lost.length > 0 && html`<ul>${lost.map(one => html`<li>${shown(one.rule?.title)}: ${shown(one.why)}</li>`)}</ul>`}</li>`;
}

function Explanation({ found }) {
  const { changes = [], lacks = [] } = found;
  return html`<div class="card" role="status">
    <p><b class=${found.verdict === "Allow" ? "" : "denied-text"}>${found.verdict}</b>: ${shown(found.sentence)}</p>
    <ul>${[found.egress, found.ingress].filter(Boolean).map(half => html`<${Half} half=${half} />`)}</ul>
    ${changes.length > 0 && html`<p>The smallest change that would ${found.verdict === "Allow" ? "refuse" : "allow"} it:</p>
      <ul>${changes.map(one => html`<li>${shown(one)}</li>`)}</ul>`}
    ${lacks.length > 0 && html`<details><summary>Not taken into account (${lacks.length})</summary>
      <ul>${lacks.map(one => html`<li>${shown(one)}</li>`)}</ul></details>`}
  </div>`;
}

/** A button, and the answer; `packet` is {from, to, port}. */
export function Why({ packet, parameters }) {
  const [state, setState] = useState({});
  const load = async () => {
    setState({ busy: true });
    try {
      setState({ found: await ask("flows/explain", { ...only(parameters, ["namespaces"]), ...packet }) });
    } catch (error) {
      setState({ error: error.message });
    }
  };
  return html`<div><button type="button" disabled=${state.busy} onClick=${load}>${state.busy ? "Explaining ..." : "Explain, as policies are now"}</button>
    ${state.error && html`<p class="trouble" role="alert">${state.error}</p>`}
    ${state.found && html`<${Explanation} found=${state.found} />`}</div>`;
}

// Policies made of what was seen, and which connections policies would judge otherwise. Nothing is applied.

import { html, useState } from "./vendor/htm-preact.js";
import { ask } from "./api.js";
import { save } from "./export.js";
import { Table } from "./parts.js";
import { only } from "./place.js";
import { shown } from "./text.js";

const POLICIES = [
  { title: "Policy", cell: row => shown(row.name) },
  { title: "Selects", cell: row => shown(row.selects) },
  { title: "Ingress rules", number: true, cell: row => row.ingress },
  { title: "Egress rules", number: true, cell: row => row.egress },
  { title: "Comes from", cell: row => shown(row.connections) },
];
const end = text => text.replace(/^(workload|address)\//, "");
const CHANGES = [
  { title: "Source", cell: row => shown(end(row.source)) },
  { title: "Target", cell: row => shown(end(row.target)) },
  { title: "Port", number: true, cell: row => row.port },
  { title: "Connections", number: true, cell: row => row.connections },
  { title: "Before", cell: row => row.before },
  { title: "After", cell: row => html`<span class=${row.after === "Allow" ? "" : "denied-text"}>${row.after}</span>` },
  { title: "Why", cell: row => shown(row.why) },
];

function Lines({ title, lines }) {
  return lines.length > 0 && html`<details><summary>${title} (${lines.length})</summary>
    <ul>${lines.map(one => html`<li>${shown(one)}</li>`)}</ul></details>`;
}

export function Recommend({ parameters }) {
  const [policies, setPolicies] = useState("");
  const [state, setState] = useState({});
  const given = only(parameters, ["since", "until", "namespaces", "namespace"]);
  const run = (what, question) => async () => {
    setState(before => ({ ...before, busy: what, error: "" }));
    try {
      const answer = await question();
      setState(before => ({ ...before, [what]: answer, busy: "" }));
      if (what === "recommended") setPolicies(answer.yaml);
    } catch (error) {
      setState(before => ({ ...before, error: error.message, busy: "" }));
    }
  };
  const recommend = run("recommended", () => ask("flows/recommend", given));
  const replay = run("replayed", () => ask("flows/replay", given, undefined, policies));
  const { recommended, replayed } = state;
  return html`<div>
    <p>The least policies that allow what was seen in a Namespace. Nothing is applied.</p>
    <div class="bar">
      <button type="button" class="main" disabled=${Boolean(state.busy) || !given.namespace} onClick=${recommend}>Recommend</button>
      <button type="button" disabled=${Boolean(state.busy) || !policies.trim()} onClick=${replay}>What would change?</button>
      <button type="button" disabled=${!policies.trim()} onClick=${() => save("policies.yaml", "application/yaml", policies)}>YAML</button>
      ${!given.namespace && html`<span>Name a Namespace to get a recommendation.</span>`}
      ${state.busy && html`<span role="status">Asking ...</span>`}
    </div>
    ${state.error && html`<p class="trouble" role="alert">${state.error}</p>`}
    ${recommended?.partial && html`<p class="trouble" role="alert">Connections with Namespaces that you may not see are not allowed by these policies.</p>`}
    ${recommended && html`<${Table} name="recommended" caption="Recommended policies, with what they come from" columns=${POLICIES} rows=${recommended.policies}
      none="Nothing was seen that could be allowed." />
      <${Lines} title="Left out" lines=${recommended.leftOut} /><${Lines} title="Notes" lines=${recommended.notes} />`}
    <label>Policies to try, recommended or your own
      <textarea name="policies" rows="14" spellcheck="false" value=${policies} onInput=${event => setPolicies(event.target.value)}></textarea></label>
    ${replayed && html`<p role="status">${shown(replayed.summary)}</p>
      <${Table} name="replayed" caption="Connections that would be judged otherwise" columns=${CHANGES} rows=${replayed.rows} mark=${row => row.after !== "Allow"}
      none="No connection would be judged otherwise." />
      <${Lines} title="Not judged" lines=${replayed.lacks} />`}
  </div>`;
}

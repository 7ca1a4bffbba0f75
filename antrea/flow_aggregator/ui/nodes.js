// Nodes and their agents, as kube-apiserver shows them to this user.

import { html } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { State, Table } from "./parts.js";
import { only } from "./place.js";
import { shown } from "./text.js";

/** Nothing of a Node whose agent has told nothing. */
const counted = (row, key) => row.version ? row[key] : "";
const COLUMNS = [
  { title: "Node", cell: row => shown(row.name) },
  { title: "State", cell: row => row.troubles.length ? html`<span class="denied-text">${shown(row.troubles.join("; "))}</span>` : "healthy" },
  { title: "Addresses", cell: row => row.addresses.join(", ") },
  { title: "Agent", cell: row => shown(row.version) },
  { title: "Open vSwitch", cell: row => shown(row.ovsVersion) },
  { title: "Pods", number: true, cell: row => counted(row, "pods") },
  { title: "Policies", number: true, cell: row => counted(row, "policies") },
  { title: "OpenFlow entries", number: true, cell: row => counted(row, "flows") },
];

export function Nodes({ parameters }) {
  const state = useAnswer("flows/nodes", only(parameters, ["namespaces"]), 15000);
  return html`<div><${State} state=${state} />
    ${state.answer && html`<${Table} name="nodes" caption="Nodes and their agents" columns=${COLUMNS} rows=${state.answer.rows}
      mark=${row => row.troubles.length > 0} none="kube-apiserver lists no Node." />`}</div>`;
}

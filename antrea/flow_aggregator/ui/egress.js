// Egress IPs, and who left the cluster by them.

import { html } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { State, Table } from "./parts.js";
import { FILTERS, only, to } from "./place.js";
import { bytes, shown } from "./text.js";

const LIVE = 10000;
const ROWS = 100;

function who(row, given) {
  if (!row.pod) return shown(row.source);
  const pod = `${row.namespace}/${row.pod}`;
  return html`<a href=${to("flows", { ...given, egress: row.name, pod })}>${shown(pod)}</a>`;
}

export function Egress({ parameters }) {
  const given = only(parameters, FILTERS);
  const asked = { ...given, by: "egress-source", limit: parameters.limit || ROWS };
  const state = useAnswer("flows/top", asked, parameters.live ? LIVE : 0);
  const columns = [
    { title: "Egress", cell: row => html`<a href=${to("flows", { ...given, egress: row.name })}>${shown(row.name)}</a>` },
    { title: "Egress IP", cell: row => shown(row.ip) },
    { title: "Node", cell: row => shown(row.node) },
    { title: "Who left by it", cell: row => who(row, given) },
    { title: "Bytes", number: true, cell: row => bytes(row.bytes) },
    { title: "Connections", number: true, cell: row => row.connections },
    { title: "Denied", number: true, cell: row => html`<span class=${row.denied ? "denied-text" : ""}>${row.denied}</span>` },
  ];
  return html`<div><${State} state=${state} />
    ${state.answer && html`<${Table} name="egress" caption="Who left the cluster by which Egress IP, most bytes first" columns=${columns}
      rows=${state.answer.rows} />`}</div>`;
}

// The newest records of connections.

import { html } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { State, Table } from "./parts.js";
import { FILTERS, only, to } from "./place.js";
import { bytes, denied, end, moment, policy, protocol, shown } from "./text.js";

const LIVE = 2000;

/** What identifies a connection among records. */
function identity(flow, parameters) {
  return {
    ...only(parameters, ["namespaces", "since", "until"]),
    srcip: flow.sourceIP, dstip: flow.destinationIP, port: flow.destinationTransportPort || "",
    protocol: flow.protocolIdentifier, source: flow.sourceTransportPort, start: flow.flowStartSeconds,
  };
}

function pod(flow, side, parameters) {
  const name = flow[`${side}PodName`];
  const text = end(flow, side);
  if (!name) return text;
  const narrowed = { ...parameters, pod: `${flow[`${side}PodNamespace`]}/${name}` };
  return html`<a href=${to("flows", narrowed)}>${text}</a>`;
}

function verdict(flow, side) {
  const refused = flow[`${side}NetworkPolicyRuleAction`] > 1;
  return html`<span class=${refused ? "denied-text" : ""}>${policy(flow, side)}</span>`;
}

export function Flows({ parameters }) {
  const asked = only(parameters, [...FILTERS, "limit"]);
  const state = useAnswer("flows", asked, parameters.live ? LIVE : 0);
  const columns = [
    { title: "Last packet", cell: flow => html`<a href=${to("connection", identity(flow, parameters))}>
      <time>${moment(flow.flowEndSeconds)}</time></a>` },
    { title: "Source", cell: flow => pod(flow, "source", parameters) },
    { title: "Destination", cell: flow => pod(flow, "destination", parameters) },
    { title: "Port", number: true, cell: flow => flow.destinationTransportPort || "" },
    { title: "Protocol", cell: flow => protocol(flow.protocolIdentifier) },
    { title: "Service", cell: flow => shown(flow.destinationServicePortName) },
    { title: "Bytes", number: true, cell: flow => bytes(flow.octetTotalCount + flow.reverseOctetTotalCount) },
    { title: "Egress rule", cell: flow => verdict(flow, "egress") },
    { title: "Ingress rule", cell: flow => verdict(flow, "ingress") },
    { title: "Egress IP", cell: flow => shown(flow.egressName && `${flow.egressName} ${flow.egressIP}`) },
  ];
  return html`<div><${State} state=${state} />${state.answer && html`<${Table} name="flows" columns=${columns}
    caption="Records of connections, newest first" rows=${state.answer.rows} mark=${denied} />`}</div>`;
}

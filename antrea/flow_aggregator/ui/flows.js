// The newest records of connections, and those that come while it is looked at.

import { html, useState, useEffect } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { useLive } from "./live.js";
import { State, Table } from "./parts.js";
import { FILTERS, only, to } from "./place.js";
import { bytes, denied, end, moment, policy, protocol, shown } from "./text.js";

// filters of a moment: what comes is neither before nor after it
const OF_TIME = ["since", "until"];
const ROWS = 100;

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

function key(flow) {
  return JSON.stringify([flow.sourceIP, flow.sourceTransportPort, flow.destinationIP, flow.destinationTransportPort,
    flow.protocolIdentifier, flow.flowStartSeconds]);
}

/** What has come while it is live: {rows, missed, on, error}; a connection has one row, that of its newest record. */
function useComing(asked, active, most) {
  const [coming, setComing] = useState({ rows: [], missed: 0 });
  const filters = Object.fromEntries(Object.entries(asked).filter(([name]) => ![...OF_TIME, "limit"].includes(name)));
  const receive = ({ rows, missed }) => setComing(before => {
    if (!rows.length && !missed) return before;
    const found = new Map(before.rows.map(row => [key(row), row]));
    for (const row of rows) {
      found.delete(key(row));
      found.set(key(row), row);
    }
    return { rows: [...found.values()].slice(-most), missed: before.missed + missed };
  });
  useEffect(() => setComing({ rows: [], missed: 0 }), [JSON.stringify(filters), active]);
  return { ...coming, ...useLive(filters, active, receive) };
}

function merged(coming, rows, most) {
  const known = new Set(coming.map(key));
  const all = [...coming.toReversed(), ...rows.filter(row => !known.has(key(row)))];
  return all.sort((one, other) => other.flowEndSeconds - one.flowEndSeconds).slice(0, most);
}

function Coming({ coming }) {
  const state = coming.error ? "The stream is interrupted, and tried again" : coming.on ? "Live" : "Connecting ...";
  return html`<div class="bar" role="status"><span class=${coming.on && !coming.error ? "pulse" : "pulse off"}></span>
    <span>${state}</span>${coming.missed > 0 && html`<span>${coming.missed} more came than are shown</span>`}</div>`;
}

export function Flows({ parameters }) {
  const asked = only(parameters, [...FILTERS, "limit"]);
  const most = Number(parameters.limit) || ROWS;
  const isLive = Boolean(parameters.live) && !parameters.until;
  const state = useAnswer("flows", asked, 0);
  const coming = useComing(asked, isLive, most);
  const rows = merged(coming.rows, state.answer?.rows ?? [], most);
  const columns = [
    { title: "Last packet", cell: flow => html`<a href=${to("connection", identity(flow, parameters))}>
      <time>${moment(flow.flowEndSeconds)}</time></a>` },
    { title: "Source", cell: flow => pod(flow, "source", parameters) },
    { title: "Destination", cell: flow => pod(flow, "destination", parameters) },
    { title: "Port", number: true, cell: flow => flow.destinationTransportPort || "" },
    { title: "Protocol", cell: flow => protocol(flow.protocolIdentifier) },
    { title: "Direction", optional: true, cell: flow => flow.biflowDirection === 0 ? "unknown" : "" },
    { title: "Service", optional: true, cell: flow => shown(flow.destinationServicePortName) },
    { title: "Bytes", number: true, cell: flow => bytes(flow.octetTotalCount + flow.reverseOctetTotalCount) },
    { title: "Egress rule", optional: true, cell: flow => verdict(flow, "egress") },
    { title: "Ingress rule", optional: true, cell: flow => verdict(flow, "ingress") },
    { title: "Egress IP", optional: true, cell: flow => flow.egressName && html`${shown(flow.egressName)}<br />${shown(flow.egressIP)}` },
  ];
  return html`<div><${State} state=${state} />${isLive && html`<${Coming} coming=${coming} />`}
    ${(state.answer || rows.length > 0) && html`<${Table} name="flows" columns=${columns}
      caption="Records of connections, newest first" rows=${rows} mark=${denied} />`}</div>`;
}

// One connection: both ends, what decided about it, and each record of it.

import { html } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { State, Table } from "./parts.js";
import { only, to } from "./place.js";
import { Requests } from "./requests.js";
import { action, bytes, end, moment, policy, protocol, shown } from "./text.js";
import { Why } from "./why.js";

const TYPES = { 1: "NetworkPolicy", 2: "Antrea NetworkPolicy", 3: "Antrea ClusterNetworkPolicy" };

function node(flow, side) {
  return flow[`${side}NodeName`] ? ` on Node ${shown(flow[`${side}NodeName`])}` : "";
}

function socket(flow, side) {
  const port = flow[`${side}TransportPort`];
  const address = flow[`${side}IP`];
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

function rule(flow, side) {
  const known = policy(flow, side);
  if (!known) return "no rule is recorded";
  const name = shown(flow[`${side}NetworkPolicyRuleName`]);
  const type = TYPES[flow[`${side}NetworkPolicyType`]] ?? "";
  return [known, name && `rule ${name}`, type].filter(Boolean).join(", ");
}

// what Kubernetes allows in names of Pods: nothing else is put into a command that users copy
const NAME = /^[a-z0-9.-]+\/[a-z0-9.-]+$/;

const ADDRESS = /^[0-9a-f.:]+$/;

/** What explain is asked; nothing for what is no packet of TCP, UDP or SCTP. */
function packet(flow) {
  const [from, target] = ["source", "destination"].map(side => end(flow, side));
  if (![from, target].every(one => NAME.test(one) || ADDRESS.test(one)) || !flow.destinationTransportPort) return undefined;
  return { from, to: target, port: `${flow.destinationTransportPort}/${protocol(flow.protocolIdentifier).toLowerCase()}` };
}

function command({ from, to: target, port }) {
  return `antctl explain --from ${from} --to ${target} --port ${port}`;
}

function Ends({ flow, parameters }) {
  const asked = packet(flow);
  const service = flow.destinationServicePortName;
  const rows = [
    ["Source", `${end(flow, "source")}, ${socket(flow, "source")}${node(flow, "source")}`],
    ["Destination", `${end(flow, "destination")}, ${socket(flow, "destination")}${node(flow, "destination")}`],
    ["Protocol", [protocol(flow.protocolIdentifier), shown(flow.tcpState)].filter(Boolean).join(", ")],
    ["Direction", flow.biflowDirection === 0 && "unknown: the switch has not seen which end opened it"],
    ["Service", service && [shown(service), flow.destinationClusterIP, flow.destinationServicePort || ""].filter(Boolean).join(", ")],
    ["Egress rule", rule(flow, "egress")],
    ["Ingress rule", rule(flow, "ingress")],
    ["Egress IP", shown([flow.egressName, flow.egressIP, flow.egressNodeName && `from Node ${flow.egressNodeName}`].filter(Boolean).join(", "))],
    ["Application", shown(flow.appProtocolName)],
    ["Began", moment(flow.flowStartSeconds)],
    ["Last packet", moment(flow.flowEndSeconds)],
    ["Why", asked && html`<div><code>${command(asked)}</code><${Why} packet=${asked} parameters=${parameters} /></div>`],
  ];
  return html`<dl class="ends">${rows.filter(([, value]) => value).map(([name, value]) =>
    [html`<dt>${name}</dt>`, html`<dd>${value}</dd>`])}</dl>`;
}

const COLUMNS = [
  { title: "Last packet", cell: flow => html`<time>${moment(flow.flowEndSeconds)}</time>` },
  { title: "Packets", number: true, cell: flow => `${flow.packetTotalCount} / ${flow.reversePacketTotalCount}` },
  { title: "Bytes", number: true, cell: flow => `${bytes(flow.octetTotalCount)} / ${bytes(flow.reverseOctetTotalCount)}` },
  { title: "State", cell: flow => shown(flow.tcpState) },
  { title: "Egress, ingress", cell: flow => ["egress", "ingress"].map(side =>
    action(flow[`${side}NetworkPolicyRuleAction`]) || "none").join(", ") },
];

export function Connection({ parameters }) {
  const asked = only(parameters, ["namespaces", "since", "until", "srcip", "dstip", "port", "protocol"]);
  const state = useAnswer("flows", { ...asked, limit: 1000 }, parameters.live ? 2000 : 0);
  const own = row => String(row.sourceTransportPort) === parameters.source && String(row.flowStartSeconds) === parameters.start;
  const rows = (state.answer?.rows ?? []).filter(own);
  const others = to("flows", only(parameters, ["namespaces", "since", "until", "srcip", "dstip"]));
  return html`<div><${State} state=${state} />
    ${state.answer && !rows.length && html`<p>No record of this connection is in that time: raise Since.</p>`}
    ${rows.length > 0 && html`<${Ends} flow=${rows[0]} parameters=${parameters} />
      <p><a href=${others}>All connections between these addresses</a></p>
      <${Table} name="connection" caption="Records of this connection, there / back" columns=${COLUMNS} rows=${rows} />
      <${Requests} rows=${rows} />`}
  </div>`;
}

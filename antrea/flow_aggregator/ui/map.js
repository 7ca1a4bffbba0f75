// Who talks to whom: a drawing, and the same links as a table.

import { html, useMemo, useRef } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { State, Table } from "./parts.js";
import { FILTERS, only, to } from "./place.js";
import { bytes, protocol, shown } from "./text.js";

const LIVE = 10000;
// nodes from which on the layout takes fewer steps
const MANY = 150;
// least size of the drawing, and most characters of a label
const WIDTH = 1000, HEIGHT = 440, LABEL = 36;
const CHOICES = {
  namespace: "Namespaces", workload: "Workloads", service: "Workloads and Services", endpoint: "Workloads and addresses",
};

function label(node) {
  return shown(node.kind === "workload" ? `${node.namespace}/${node.name}` : node.name);
}

/** Nodes with places, and one line for all links of a pair; nodes keep the places that they had. */
function layout(answer, places) {
  const nodes = answer.nodes.map(one => ({ ...one, ...places.get(one.id) }));
  const pairs = new Map();
  for (const one of answer.links) {
    if (one.source === one.target) continue;
    const key = JSON.stringify([one.source, one.target]);
    const pair = pairs.get(key) ?? { source: one.source, target: one.target, bytes: 0, denied: 0 };
    pair.bytes += one.bytes;
    pair.denied += one.denied;
    pairs.set(key, pair);
  }
  const links = [...pairs.values()];
  const force = d3.forceSimulation(nodes).stop()
    .force("charge", d3.forceManyBody().strength(-450))
    .force("link", d3.forceLink(links).id(one => one.id).distance(160))
    .force("x", d3.forceX().strength(0.05)).force("y", d3.forceY().strength(0.09));
  force.tick(nodes.length > MANY ? 60 : 250);
  places.clear();
  for (const one of nodes) places.set(one.id, { x: one.x, y: one.y });
  return { nodes, links };
}

/** The part of the plane that is drawn: all nodes with their labels, and no less than WIDTH x HEIGHT around them. */
function box(nodes) {
  const xs = nodes.map(one => one.x), ys = nodes.map(one => one.y);
  const [left, top] = [Math.min(...xs) - 3.5 * LABEL, Math.min(...ys) - 30];
  const [width, height] = [Math.max(...xs) - left + 3.5 * LABEL, Math.max(...ys) - top + 40];
  const [more, higher] = [Math.max(0, WIDTH - width), Math.max(0, HEIGHT - height)];
  return [left - more / 2, top - higher / 2, width + more, height + higher].map(Math.round).join(" ");
}

function short(text) {
  return text.length > LABEL ? `${text.slice(0, LABEL - 1)}\u2026` : text;
}

/** From the source to the target, with a corner for the arrow, which is not where that of the other direction is. */
function line({ source, target }) {
  const [x, y] = ["x", "y"].map(axis => source[axis] + 0.62 * (target[axis] - source[axis]));
  return `M ${source.x} ${source.y} L ${x} ${y} L ${target.x} ${target.y}`;
}

function Arrow({ name, kind = "" }) {
  return html`<marker id=${name} class=${kind} viewBox="0 0 10 10" refX="5" refY="5" markerWidth="15" markerHeight="15"
    markerUnits="userSpaceOnUse" orient="auto"><path d="M 0 0 L 10 5 L 0 10 z" /></marker>`;
}

/** A node, which leads to the connections of its Namespace, if it has one. */
function Circle({ node, parameters }) {
  const drawn = html`<circle cx=${node.x} cy=${node.y} r="9" /><text x=${node.x} y=${node.y + 24}>${short(label(node))}</text>`;
  if (!node.namespace) return html`<g class="outside">${drawn}</g>`;
  const name = `${node.kind} ${label(node)}: connections of its Namespace`;
  return html`<a href=${to("flows", { ...parameters, namespace: node.namespace })} aria-label=${name}>${drawn}</a>`;
}

function Drawing({ answer, parameters }) {
  const places = useRef(new Map());
  const { nodes, links } = useMemo(() => layout(answer, places.current), [answer]);
  if (!nodes.length) return undefined;
  const lines = links.map(one => html`<path class=${`link ${one.denied ? "denied" : ""}`} d=${line(one)}
    marker-mid=${`url(#arrow${one.denied ? "-denied" : ""})`} stroke-width=${1 + Math.min(6, Math.log10(1 + one.bytes) / 2)} />`);
  const circles = nodes.map(one => html`<${Circle} key=${one.id} node=${one} parameters=${parameters} />`);
  return html`<div class="scroll"><svg class="map" viewBox=${box(nodes)} role="group" aria-label="Map of connections; the table below has the same">
    <defs><${Arrow} name="arrow" /><${Arrow} name="arrow-denied" kind="denied" /></defs>${lines}${circles}</svg></div>`;
}

export function ServiceMap({ parameters }) {
  const by = Object.hasOwn(CHOICES, parameters.by ?? "") ? parameters.by : "workload";
  const given = only(parameters, FILTERS);
  const state = useAnswer("flows/map", { ...given, by }, parameters.live ? LIVE : 0);
  const names = new Map((state.answer?.nodes ?? []).map(one => [one.id, label(one)]));
  const columns = [
    { title: "Source", cell: link => names.get(link.source) },
    { title: "Target", cell: link => names.get(link.target) },
    { title: "Port", number: true, cell: link => link.port || "" },
    { title: "Protocol", cell: link => protocol(link.protocol) },
    { title: "Bytes", number: true, cell: link => bytes(link.bytes) },
    { title: "Connections", number: true, cell: link => link.connections },
    { title: "Denied", number: true, cell: link => html`<span class=${link.denied ? "denied-text" : ""}>${link.denied}</span>` },
    { title: "Direction unknown", number: true, optional: true, cell: link => link.unknown || "" },
  ];
  const choose = event => { location.hash = to("map", { ...parameters, by: event.target.value }); };
  return html`<div>
    <div class="bar"><label>Show <select value=${by} onChange=${choose}>${Object.entries(CHOICES).map(([key, text]) =>
      html`<option value=${key}>${text}</option>`)}</select></label>
      <span>Arrows lead to who was asked; a dashed red line has denied connections; width is by bytes.</span></div>
    <${State} state=${state} />
    ${state.answer && html`<${Drawing} answer=${state.answer} parameters=${given} />
      <${Table} name="map" caption="Links" columns=${columns} rows=${state.answer.links} mark=${one => one.denied > 0} />`}
  </div>`;
}

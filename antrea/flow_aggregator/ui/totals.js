// Top talkers, and what policies let pass and denied over time.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { useAnswer } from "./api.js";
import { State, Table } from "./parts.js";
import { FILTERS, only, to } from "./place.js";
import { bytes, moment, shown } from "./text.js";

const LIVE = 10000;
const CHOICES = { source: "Sources", destination: "Destinations", policy: "Policies", egress: "Egress IPs", namespace: "Namespaces" };
const TYPES = { 1: "NetworkPolicy", 2: "Antrea NetworkPolicy", 3: "Antrea ClusterNetworkPolicy" };

function name(row) {
  const path = [row.namespace, row.name].filter(Boolean).join("/");
  const parts = [path, row.ip, row.service && `Service ${row.service}`, row.node && `on ${row.node}`, TYPES[row.type], row.direction];
  return shown(parts.filter(Boolean).join(", ")) || "outside";
}

/** The filter that has the connections of a row; none of what is outside. */
function filter(by, row) {
  const path = [row.namespace, row.name].filter(Boolean).join("/");
  if (by === "egress") return { egress: row.name };
  if (by === "namespace") return { namespace: row.namespace };
  if (by === "policy") return { policy: row.name && path };
  if (row.name) return { pod: path };
  return by === "source" ? { srcip: row.ip } : { dstip: row.ip };
}

function link(by, row, given) {
  const own = filter(by, row);
  return Object.values(own)[0] ? html`<a href=${to("flows", { ...given, ...own })}>${name(row)}</a>` : name(row);
}

export function Top({ parameters }) {
  const by = Object.hasOwn(CHOICES, parameters.by ?? "") ? parameters.by : "source";
  const given = only(parameters, [...FILTERS, "limit"]);
  const state = useAnswer("flows/top", { ...given, by }, parameters.live ? LIVE : 0);
  const rows = state.answer?.rows ?? [];
  const most = Math.max(1, ...rows.map(row => row.bytes));
  const columns = [
    { title: CHOICES[by], cell: row => link(by, row, only(given, FILTERS)) },
    { title: "Bytes", number: true, cell: row => bytes(row.bytes) },
    { title: "Share of the most", cell: row => html`<meter min="0" max=${most} value=${row.bytes} aria-label=${bytes(row.bytes)} />` },
    { title: "Connections", number: true, cell: row => row.connections },
    { title: "Denied", number: true, cell: row => html`<span class=${row.denied ? "denied-text" : ""}>${row.denied}</span>` },
  ];
  const choose = event => { location.hash = to("top", { ...parameters, by: event.target.value }); };
  return html`<div>
    <div class="bar"><label>By <select value=${by} onChange=${choose}>${Object.entries(CHOICES).map(([key, text]) =>
      html`<option value=${key}>${text}</option>`)}</select></label></div>
    <${State} state=${state} />
    ${state.answer && html`<${Table} name="top" caption="Most bytes first" columns=${columns} rows=${rows} />`}
  </div>`;
}

/** [times, allowed, denied] of all `policies` together, with 0 for steps without connections, one before and one after. */
function series(policies, step) {
  const sums = new Map();
  for (const point of policies.flatMap(one => one.points)) {
    const sum = sums.get(point.time) ?? [0, 0];
    sums.set(point.time, [sum[0] + point.allowed, sum[1] + point.dropped]);
  }
  const times = [];
  const known = [...sums.keys()].sort((one, other) => one - other);
  for (let at = known[0] - step; at <= known.at(-1) + step && times.length < 2000; at += step) times.push(at);
  return [times, times.map(at => sums.get(at)?.[0] ?? 0), times.map(at => sums.get(at)?.[1] ?? 0)];
}

/** A number that becomes another one when the window's width or the system's colors do. */
function useLook() {
  const [look, setLook] = useState(0);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setLook(before => before + 1);
    dark.addEventListener("change", change);
    addEventListener("resize", change);
    return () => { dark.removeEventListener("change", change); removeEventListener("resize", change); };
  }, []);
  return look;
}

/** A time of the axis, in UTC; midnight as its day. */
function clock(seconds) {
  const [day, time] = moment(seconds).replace("Z", "").split("T");
  return time === "00:00:00" ? day : time.replace(/:00$/, "");
}

function Chart({ data }) {
  const place = useRef();
  const look = useLook();
  useEffect(() => {
    const color = of => getComputedStyle(document.documentElement).getPropertyValue(of).trim();
    const lines = { stroke: color("--line"), width: 1 };
    const axis = { stroke: color("--ink"), grid: lines, ticks: lines };
    const times = { ...axis, space: 90, values: (_, ticks) => ticks.map(clock) };
    const line = (label, of, width) => ({ label, stroke: color(of), width, points: { show: true } });
    const tzDate = at => uPlot.tzDate(new Date(at * 1000), "Etc/UTC");
    const curves = [{ label: "UTC", value: (_, at) => at ? moment(at) : "--" }, line("allowed", "--allowed", 5), line("denied", "--denied", 2)];
    const shape = { width: place.current.clientWidth || 900, height: 260, axes: [times, axis], series: curves, tzDate };
    const plot = new uPlot(shape, data, place.current);
    return () => plot.destroy();
  }, [data, look]);
  return html`<div class="chart" role="img" tabindex="0" aria-label="Connections allowed and denied over time; the table below has the sums" ref=${place}></div>`;
}

/** What one policy allowed and denied over time, as bars of the steps between `times`. */
function Bars({ points, times, step }) {
  const [first, last] = [times[0], times.at(-1)];
  const width = 150 / ((last - first) / step + 1);
  const most = Math.max(1, ...points.map(one => one.allowed + one.dropped));
  const bar = (kind, at, from, count) => count > 0 && html`<rect class=${kind} x=${(at - first) / step * width} width=${Math.max(width - 0.5, 0.5)}
    y=${24 - (from + count) / most * 24} height=${Math.max(count / most * 24, 1)} />`;
  return html`<svg class="bars" viewBox="0 0 150 24" role="img" aria-label=${`at most ${most} in ${step} s`}>
    ${points.map(one => [bar("allowed", one.time, 0, one.allowed), bar("dropped", one.time, one.allowed, one.dropped)])}</svg>`;
}

export function Policies({ parameters }) {
  const given = only(parameters, FILTERS);
  const state = useAnswer("flows/policies", given, parameters.live ? LIVE : 0);
  const found = state.answer?.policies ?? [];
  const sum = (one, key) => one.points.reduce((total, point) => total + point[key], 0);
  const rows = found.map(one => ({
    direction: one.direction, type: TYPES[one.type] ?? "", namespace: one.namespace, name: one.name,
    allowed: sum(one, "allowed"), denied: sum(one, "dropped"), points: one.points,
  }));
  const [times] = series(found, state.answer?.step);
  const path = row => [row.namespace, row.name].filter(Boolean).join("/");
  const columns = [
    { title: "Policy", cell: row => row.name
      ? html`<a href=${to("flows", { ...given, policy: path(row) })}>${shown(path(row))}</a>` : "isolation by NetworkPolicies" },
    { title: "Type", cell: row => row.type },
    { title: "Direction", cell: row => row.direction },
    { title: "Allowed", number: true, cell: row => row.allowed },
    { title: "Denied", number: true, cell: row => html`<span class=${row.denied ? "denied-text" : ""}>${row.denied}</span>` },
    { title: "Over time", cell: row => html`<${Bars} points=${row.points} times=${times} step=${state.answer.step} />` },
  ];
  return html`<div><${State} state=${state} />
    ${found.length > 0 && html`<${Chart} data=${series(found, state.answer.step)} />`}
    ${state.answer && html`<${Table} name="policies" caption="Connections by policy" columns=${columns} rows=${rows} mark=${row => row.denied > 0} />`}
  </div>`;
}

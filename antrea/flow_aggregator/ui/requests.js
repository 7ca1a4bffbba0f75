// Requests of a connection, as its records have them: of HTTP, names that TLS asks for, and look-ups of DNS.

import { html } from "./vendor/htm-preact.js";
import { Table } from "./parts.js";
import { bytes, shown } from "./text.js";

const NUMBER = { title: "Request", number: true, cell: row => shown(row.number) };
const text = (title, key, wide = false) => ({ title, wide, cell: row => shown(row[key]) });
const COLUMNS = {
  http: [
    NUMBER, text("Method", "http_method"), text("Host", "hostname"), text("URL", "url", true),
    { title: "Status", number: true, cell: row => shown(row.status || "") }, text("Protocol", "protocol"), text("Content type", "http_content_type"),
    { title: "Bytes", number: true, cell: row => bytes(Number(row.length) || 0) }, text("User agent", "http_user_agent", true),
  ],
  grpc: [
    NUMBER, text("Host", "hostname"), text("Method", "url", true), { title: "Status of gRPC", number: true, cell: row => shown(row.grpc_status) },
    { title: "Status of HTTP", number: true, cell: row => shown(row.status || "") },
    { title: "Bytes", number: true, cell: row => bytes(Number(row.length) || 0) }, text("User agent", "http_user_agent", true),
  ],
  tls: [NUMBER, text("Server name", "sni"), text("Version", "version")],
  dns: [NUMBER, text("Name", "rrname"), text("Type", "rrtype"), text("Code", "rcode"), text("Answers", "answers")],
};

/** The requests of one record; nothing of what is no JSON of requests. */
function read(row) {
  try {
    return Object.entries(JSON.parse(row.httpVals)).filter(([, one]) => one && typeof one === "object")
      .map(([number, one]) => [`${row.appProtocolName} ${number}`, { ...one, number, application: row.appProtocolName }]);
  } catch {
    return [];
  }
}

/** What is known of calls of gRPC is more than of other requests of HTTP. */
function kind(one) {
  return one.application === "http" && "grpc_status" in one ? "grpc" : one.application;
}

/** `rows` are the records of one connection, the newest first. */
export function Requests({ rows }) {
  const found = new Map(rows.toReversed().flatMap(read));
  const all = [...found.values()].sort((one, other) => one.number - other.number);
  return Object.entries(COLUMNS).map(([name, columns]) => {
    const own = all.filter(one => kind(one) === name);
    return own.length > 0 && html`<${Table} name="requests-${name}" caption="Requests of this connection: ${name}" columns=${columns} rows=${own} />`;
  });
}

// HTTP requests of a connection, as its records have them.

import { html } from "./vendor/htm-preact.js";
import { Table } from "./parts.js";
import { bytes, shown } from "./text.js";

const COLUMNS = [
  { title: "Request", number: true, cell: row => shown(row.number) },
  { title: "Method", cell: row => shown(row.http_method) },
  { title: "Host", cell: row => shown(row.hostname) },
  { title: "URL", cell: row => shown(row.url) },
  { title: "Status", number: true, cell: row => shown(row.status || "") },
  { title: "Content type", cell: row => shown(row.http_content_type) },
  { title: "Bytes", number: true, cell: row => bytes(Number(row.length) || 0) },
  { title: "User agent", cell: row => shown(row.http_user_agent) },
];

/** The requests of one record; nothing of what is no JSON of requests. */
function read(text) {
  try {
    return Object.entries(JSON.parse(text)).filter(([, one]) => one && typeof one === "object");
  } catch {
    return [];
  }
}

/** `rows` are the records of one connection, the newest first. */
export function Requests({ rows }) {
  const found = new Map(rows.toReversed().flatMap(row => read(row.httpVals || "{}")));
  const requests = [...found].map(([number, one]) => ({ number, ...one })).sort((one, other) => one.number - other.number);
  return requests.length > 0 && html`<${Table} name="requests" caption="HTTP requests of this connection" columns=${COLUMNS} rows=${requests} />`;
}

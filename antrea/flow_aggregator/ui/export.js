// Files of what a table shows.

import { html } from "./vendor/htm-preact.js";

// what a spreadsheet would take for a formula
const FORMULA = /^[=+\-@\t\r]/;

/** RFC 4180; a text that a spreadsheet would compute has an apostrophe before it. */
export function csv(rows) {
  const names = Object.keys(rows[0] ?? {});
  return [names, ...rows.map(row => names.map(name => row[name]))].map(line => line.map(cell).join(",") + "\r\n").join("");
}

function cell(value) {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Two buttons. */
export function Files({ name, rows }) {
  const asCsv = () => save(`${name}.csv`, "text/csv", csv(rows));
  const asJson = () => save(`${name}.json`, "application/json", JSON.stringify(rows, null, 2));
  return html`<span><button type="button" onClick=${asCsv}>CSV</button> <button type="button" onClick=${asJson}>JSON</button></span>`;
}

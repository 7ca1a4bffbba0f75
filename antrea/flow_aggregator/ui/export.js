// Files of what a table shows.

import { html } from "./vendor/htm-preact.js";

// what a spreadsheet would take for a formula
const FORMULA = /^[=+\-@\t\r\n]/;

/** RFC 4180, with the columns of all rows; a text that a spreadsheet would compute has an apostrophe before it. */
export function csv(rows) {
  const names = [...new Set(rows.flatMap(Object.keys))];
  return [names, ...rows.map(row => names.map(name => row[name]))].map(line => line.map(cell).join(",") + "\r\n").join("");
}

/** The text of a value; of a list its values, of anything else that has parts JSON. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join("; ");
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
}

function cell(value) {
  const text = plain(value);
  const guarded = typeof value !== "number" && FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
}

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/** Two buttons. */
export function Files({ name, rows }) {
  const asCsv = () => save(`${name}.csv`, "text/csv", csv(rows));
  const asJson = () => save(`${name}.json`, "application/json", JSON.stringify(rows, null, 2));
  return html`<span><button type="button" onClick=${asCsv}>CSV</button> <button type="button" onClick=${asJson}>JSON</button></span>`;
}

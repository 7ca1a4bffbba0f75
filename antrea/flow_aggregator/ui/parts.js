// What all views have: what went wrong, what is not all, and a table of rows with files of them.

import { html } from "./vendor/htm-preact.js";
import { Files } from "./export.js";

/** The state of a query. */
export function State({ state }) {
  return html`<div>
    ${state.error && html`<p class="trouble" role="alert">${state.error}</p>`}
    ${state.busy && html`<p role="status">Loading ...</p>`}
    ${state.answer?.truncated && html`<p class="bar">There is more than is shown: narrow the filters, or raise the limit.</p>`}
  </div>`;
}

const kind = one => one.number ? "number" : one.wide ? "wide" : "";

/** `columns` are {title, cell, number, wide}; `cell` makes what is shown of a row, `wide` is for long texts. */
export function Table({ name, caption, columns, rows, mark }) {
  const head = columns.map(one => html`<th scope="col" class=${kind(one)}>${one.title}</th>`);
  const line = row => columns.map(one => html`<td class=${kind(one)}>${one.cell(row)}</td>`);
  return html`<section>
    <div class="bar"><span>Rows: ${rows.length}</span><${Files} name=${name} rows=${rows} /></div>
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
      <caption>${caption}</caption>
      <thead><tr>${head}</tr></thead>
      <tbody>${rows.map(row => html`<tr class=${mark?.(row) ? "denied" : ""}>${line(row)}</tr>`)}</tbody>
    </table></div>
  </section>`;
}

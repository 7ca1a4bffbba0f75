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

const NONE = "Nothing was seen in that time that these filters let through.";

// characters of a cell up to which it is not broken
const SHORT = 26;

const kind = one => one.number ? "number" : one.wide ? "wide" : "";

/** The text of what a cell shows. */
function textOf(shown) {
  if (Array.isArray(shown)) return shown.map(textOf).join("");
  return shown !== null && typeof shown === "object" ? textOf(shown.props?.children) : String(shown ?? "");
}

/** `columns` are {title, cell, number, wide, optional}; `cell` makes what is shown of a row, `wide` is for long texts, and an `optional`
 * one is there if a row has something of it; `none` is shown without rows. */
export function Table({ name, caption, columns, rows, mark, none = NONE }) {
  if (!rows.length) return html`<section><p class="none">${none}</p></section>`;
  const all = rows.map(row => columns.map(one => one.cell(row)));
  const texts = all.map(cells => cells.map(textOf));
  const there = columns.map((one, at) => !one.optional || texts.some(cells => cells[at]));
  const head = columns.map((one, at) => there[at] && html`<th scope="col" class=${kind(one)}>${one.title}</th>`);
  const line = row => columns.map((one, at) => there[at] &&
    html`<td class=${`${kind(one)} ${texts[row][at].length > SHORT ? "long" : "short"}`}>${all[row][at]}</td>`);
  return html`<section>
    <div class="bar"><span>Rows: ${rows.length}</span><${Files} name=${name} rows=${rows} /></div>
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
      <caption>${caption}</caption>
      <thead><tr>${head}</tr></thead>
      <tbody>${rows.map((row, at) => html`<tr class=${mark?.(row) ? "denied" : ""}>${line(at)}</tr>`)}</tbody>
    </table></div>
  </section>`;
}

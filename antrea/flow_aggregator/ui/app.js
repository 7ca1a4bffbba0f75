// The page: signing in, the views and their filters.

import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { signIn, signOut, token } from "./api.js";
import { Connection } from "./connection.js";
import { Egress } from "./egress.js";
import { Flows } from "./flows.js";
import { ServiceMap } from "./map.js";
import { Nodes } from "./nodes.js";
import { FILTERS, only, place, to } from "./place.js";
import { Recommend } from "./recommend.js";
import { Policies, Top } from "./totals.js";

const VIEWS = { flows: Flows, map: ServiceMap, top: Top, egress: Egress, policies: Policies, recommend: Recommend, nodes: Nodes, connection: Connection };
const TITLES = { flows: "Connections", map: "Map", top: "Top talkers", egress: "Egress IPs", policies: "Policies", recommend: "Recommend", nodes: "Nodes",
  connection: "Connection" };
const FIELDS = [
  ["since", "Since", "1h"], ["until", "Until", "now"], ["namespaces", "Your Namespaces", "all"], ["namespace", "Namespace", ""],
  ["pod", "Pod", "namespace/name"], ["srcip", "Source address", ""], ["dstip", "Destination address", ""], ["port", "Port", ""],
  ["protocol", "Protocol", "tcp"], ["action", "Action", "denied"], ["policy", "Policy", "namespace/name"], ["egress", "Egress", ""],
  ["limit", "Limit", "100"],
];
// what is asked without a limit
const LIMITS = { top: "10" };
// views that have few of the fields
const ONLY = { recommend: ["since", "until", "namespaces", "namespace"], nodes: ["namespaces"] };
const LIMITED = ["flows", "top", "egress"];
const ACTIONS = ["allow", "drop", "reject", "denied"];

function SignIn({ done, why }) {
  const [wrong, setWrong] = useState(why);
  function submit(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    const value = given.get("token").trim();
    if (!/^[\x21-\x7e]+$/.test(value)) {
      setWrong("A token has letters, digits and punctuation only, without spaces.");
      return;
    }
    signIn(value);
    const { view, parameters } = place();
    if (given.get("namespaces")) location.hash = to(view, { ...parameters, namespaces: given.get("namespaces").trim() });
    done();
  }
  return html`<main id="main"><form class="sign-in" onSubmit=${submit}>
    <h1>Connections of this cluster</h1>
    ${wrong && html`<p class="trouble" role="alert">${wrong}</p>`}
    <label>Token of a Kubernetes user or ServiceAccount
      <input name="token" type="password" required autocomplete="off" autofocus /></label>
    <label>Namespaces, if you may not see all
      <input name="namespaces" placeholder="shop,db" value=${place().parameters.namespaces ?? ""} /></label>
    <button class="main">Sign in</button>
    <p>For example, what <code>kubectl create token NAME</code> prints. It is kept until this tab is closed.</p>
  </form></main>`;
}

function Field({ name, title, hint, value, change }) {
  const set = event => change(name, event.target.value);
  if (name === "action") {
    return html`<label>${title}<select name=${name} value=${value} onChange=${set}>
      <option value="">any</option>${ACTIONS.map(one => html`<option value=${one}>${one}</option>`)}</select></label>`;
  }
  return html`<label>${title}<input name=${name} value=${value} placeholder=${hint} onInput=${set} /></label>`;
}

function Filters({ view, parameters }) {
  const [draft, setDraft] = useState(parameters);
  // a link or the back button changes the fields; Live leaves what is being typed, and the focus
  useEffect(() => setDraft(parameters), [to(view, { ...parameters, live: "" })]);
  const fields = FIELDS.filter(([name]) => ONLY[view]?.includes(name) ?? (name !== "limit" || LIMITED.includes(view)))
    .map(([name, title, hint]) => [name, title, name === "limit" ? LIMITS[view] ?? hint : hint]);
  const change = (name, value) => setDraft(before => ({ ...before, [name]: value }));
  const submit = event => { event.preventDefault(); location.hash = to(view, { ...draft, live: parameters.live }); };
  const live = event => { location.hash = to(view, { ...parameters, live: event.target.checked ? "1" : "" }); };
  return html`<form class="filters" role="search" onSubmit=${submit}>
    ${fields.map(([name, title, hint]) => html`<${Field} name=${name} title=${title} hint=${hint} value=${draft[name] ?? ""} change=${change} />`)}
    <button class="main">Apply</button>
    <a href=${to(view, only(parameters, ["namespaces", "by"]))}>Clear</a>
    ${!ONLY[view] && html`<label class="switch"><input type="checkbox" name="live" checked=${Boolean(parameters.live)} onChange=${live} />Live</label>`}
  </form>`;
}

function Page({ view, parameters }) {
  const kept = only(parameters, [...FILTERS, "live"]);
  const tabs = Object.keys(VIEWS).filter(one => one !== "connection" || view === one);
  const tab = one => html`<a href=${to(one, one === view ? parameters : kept)} aria-current=${one === view ? "page" : undefined}>${TITLES[one]}</a>`;
  const skip = event => { event.preventDefault(); document.getElementById("main").focus(); };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header><h1>Flow visibility</h1><nav aria-label="Views">${tabs.map(tab)}</nav>
      <button type="button" onClick=${() => signOut()}>Sign out</button></header>
    <main id="main" tabindex="-1">
      ${view !== "connection" && html`<${Filters} view=${view} parameters=${parameters} />`}
      <${VIEWS[view]} key=${view} parameters=${parameters} />
    </main>`;
}

function App() {
  const [at, setAt] = useState(place());
  const [signedIn, setSignedIn] = useState(Boolean(token()));
  const [why, setWhy] = useState("");
  useEffect(() => {
    addEventListener("hashchange", () => setAt(place()));
    addEventListener("signed-out", event => { setWhy(event.detail ?? ""); setSignedIn(false); });
  }, []);
  useEffect(() => { document.title = `${TITLES[at.view]} - flow visibility`; }, [at.view]);
  const enter = () => { setAt(place()); setSignedIn(true); };
  if (!signedIn) return html`<${SignIn} why=${why} done=${enter} />`;
  return html`<${Page} ...${at} />`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);

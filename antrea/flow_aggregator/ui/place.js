// The view and its parameters, kept behind the # of the address: links to them work, and no server's log has them.

const VIEWS = ["flows", "map", "top", "egress", "policies", "recommend", "nodes", "connection"];

/** {view, parameters} of the address. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const view = VIEWS.includes(path) ? path : "flows";
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a view; parameters without a value are left out. */
export function to(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query && "?" + query}`;
}

/** Those of `names` that are given. */
export function only(parameters, names) {
  return Object.fromEntries(names.filter(name => parameters[name]).map(name => [name, parameters[name]]));
}

export const FILTERS = ["since", "until", "namespaces", "namespace", "pod", "srcip", "dstip", "port", "protocol",
  "action", "policy", "egress"];

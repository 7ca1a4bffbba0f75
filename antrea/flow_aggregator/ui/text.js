// What is shown of values, all of which come from tenants or the network: text, never markup.

const PROTOCOLS = { 1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP" };
const ACTIONS = { 1: "Allow", 2: "Drop", 3: "Reject" };
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
// control characters, and those that turn the direction of text around or are not seen
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** The value with each character that cannot be seen as its code, so that no name looks like another. */
export function shown(value) {
  return String(value ?? "").replace(HIDDEN, one => `\\u{${one.codePointAt(0).toString(16)}}`);
}

export function protocol(number) {
  return PROTOCOLS[number] ?? String(number);
}

/** Empty where no rule decided. */
export function action(number) {
  return ACTIONS[number] ?? "";
}

export function bytes(number) {
  let unit = 0;
  for (; number >= 1000 && unit < UNITS.length - 1; unit++) number /= 1000;
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${UNITS[unit]}`;
}

/** RFC 3339 in UTC; `seconds` of Unix. */
export function moment(seconds) {
  return seconds ? new Date(seconds * 1000).toISOString().replace(".000", "") : "";
}

/** namespace/name of a Pod, or the address of what is none. */
export function end(flow, side) {
  const name = flow[`${side}PodName`];
  return shown(name ? `${flow[`${side}PodNamespace`]}/${name}` : flow[`${side}IP`]);
}

/** The policy of one direction with its action; `side` is ingress or egress. */
export function policy(flow, side) {
  const of = part => flow[`${side}NetworkPolicy${part}`];
  const verdict = action(of("RuleAction"));
  const name = of("Name") && [of("Namespace"), of("Name")].filter(Boolean).join("/");
  const known = name || (verdict && of("Type") ? "isolation by NetworkPolicies" : "");
  return shown([known, verdict].filter(Boolean).join(": "));
}

export function denied(flow) {
  return [flow.ingressNetworkPolicyRuleAction, flow.egressNetworkPolicyRuleAction].some(one => one === 2 || one === 3);
}

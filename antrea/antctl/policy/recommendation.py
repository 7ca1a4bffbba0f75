"""The least set of Kubernetes NetworkPolicies that allows the connections that were seen in a Namespace, and no others.

Each workload with connections gets a policy of its own, and one policy isolates all Pods of the Namespace in both
directions. A policy judges Pods and not Services: what was seen is the connection to an Endpoint.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FLOWS: Final = "policy.antrea.io/recommended-for"
"""Annotation that names the connections a policy comes from."""
MAX_NAMED: Final = 20
"""Connections that the annotation names."""
DENY: Final = "recommended-default-deny"
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
PROTOCOLS: Final = {6: "TCP", 17: "UDP", 132: "SCTP"}
OF_ONE_POD: Final = frozenset(
    (
        "pod-template-hash", "controller-revision-hash", "pod-template-generation", "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name", "batch.kubernetes.io/job-completion-index", "controller-uid", "job-name",
        "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
    )
)  # fmt: skip
"""Labels that the next Pod of a workload does not have."""
_SUFFIX: Final = re.compile(
    r"-([bcdfghjklmnpqrstvwxz2456789]{6,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5}$|-[0-9]{1,5}$"
)
"""Suffix of a workload's Pod names, the same as in antrea.flow_aggregator.query_map."""
_NAME_MOST: Final = 253
Labels = tuple[tuple[str, str], ...]


class Link(NamedTuple):
    """Connections between two ends, each `workload/NAMESPACE/NAME` or `address/IP`."""

    source: str
    target: str
    port: int
    protocol: int
    connections: int
    denied: int
    unknown: int = 0
    """Number of allowed connections of unknown direction: either end may have opened them."""

    @property
    def shown(self) -> str:
        """Both ends, protocol and port."""
        protocol = PROTOCOLS.get(self.protocol, str(self.protocol))
        return f"{_name(self.source)} -> {_name(self.target)} {protocol}/{self.port}"


class Recommendation(NamedTuple):
    """The policies, and in sentences what they leave out and where they allow more than what was seen."""

    policies: list[dict[str, Any]]
    left_out: list[str]
    notes: list[str]


def workload_labels(pods: Iterable[Mapping[str, Any]]) -> dict[str, Labels]:
    """The labels that all Pods of a workload have, by `workload/NAMESPACE/NAME`, of objects of Pods; none in the Node's network."""
    labels_by_workload: dict[str, Labels] = {}
    for pod in pods:
        meta = pod["metadata"]
        if pod.get("spec", {}).get("hostNetwork"):
            continue
        key = f"workload/{meta['namespace']}/{workload_of(meta['name'])}"
        labels = {key: value for key, value in (meta.get("labels") or {}).items() if key not in OF_ONE_POD}
        common = (
            set(labels_by_workload[key]) & set(labels.items())
            if key in labels_by_workload
            else labels.items()
        )
        labels_by_workload[key] = tuple(sorted(common))
    return labels_by_workload


def workload_of(pod: str) -> str:
    """The name of a Pod without what its controller adds."""
    return _SUFFIX.sub("", pod)


def recommend(namespace: str, links: Sequence[Link], pods: Sequence[Mapping[str, Any]]) -> Recommendation:
    """Recommend policies from the connections seen between workloads of these Pods."""
    prefix, labels = f"workload/{namespace}/", workload_labels(pods)
    rules: dict[str, dict[str, dict[str, set[tuple[int, int]]]]] = defaultdict(lambda: defaultdict(dict))
    remarks: dict[str, list[str]] = defaultdict(list)
    left: list[str] = []
    notes: list[str] = []
    ends: set[str] = set()
    for link in sorted(links):
        allowed = link.connections - link.denied - link.unknown
        if link.protocol not in PROTOCOLS:
            left.append(f"{link.shown}: NetworkPolicies allow no protocol without ports alone")
        elif allowed <= 0:
            left.extend(f"{link.shown}: {why}" for why in _not_counted(link))
        elif lost := [end for end in (link.source, link.target) if _is_lost(end, labels)]:
            left.append(f"{link.shown}: no Pod of {_name(lost[0])} has labels to select it by")
        else:
            ends.update((link.source, link.target))
            notes.extend(f"{link.shown}: is allowed, and {why}" for why in _not_counted(link, "was "))
            for end, way, peer in (
                (link.source, "egress", link.target),
                (link.target, "ingress", link.source),
            ):
                if end.startswith(prefix):
                    rules[end][way].setdefault(peer, set()).add((link.protocol, link.port))
                    remarks[end].append(f"{link.shown}: {allowed}")
    policies = [_policy(end, labels, ways, remarks[end]) for end, ways in sorted(rules.items())]
    isolation = _object(namespace, DENY, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, [])
    notes.extend(_wider(sorted(ends), labels, pods))
    # the isolation comes last: applied in this order nothing is denied for a moment that is allowed in the end
    return Recommendation([*policies, isolation] if policies else [], left, notes)


def _not_counted(link: Link, was: str = "") -> Iterator[str]:
    """Describe connections of a link that do not justify a rule; `was` begins the sentence."""
    if link.denied:
        yield f"{was}denied {link.denied} times"
    if link.unknown:
        yield f"the direction of {link.unknown} connections is unknown"


def _wider(
    ends: Iterable[str], labels: Mapping[str, Labels], pods: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """Workloads whose labels select Pods of others, too: what is allowed for the one is for both."""
    workloads: dict[str, list[tuple[str, set[tuple[str, str]]]]] = defaultdict(list)
    for pod in pods:
        if not pod.get("spec", {}).get("hostNetwork"):
            meta = pod["metadata"]
            pod_labels = set((meta.get("labels") or {}).items())
            workloads[meta["namespace"]].append(
                (f"workload/{meta['namespace']}/{workload_of(meta['name'])}", pod_labels)
            )
    for end in (end for end in ends if end.startswith("workload/")):
        wanted = set(labels[end])
        others = sorted(
            {
                other
                for other, other_labels in workloads[end.split("/")[1]]
                if other != end and wanted <= other_labels
            }
        )
        if others:
            names = ", ".join(map(_name, others[:MAX_NAMED]))
            more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
            yield f"{_name(end)}: its labels select {names}{more} as well, which may do the same"


def _is_lost(end: str, labels: Mapping[str, Labels]) -> bool:
    return end.startswith("workload/") and not labels.get(end)


def _policy(
    end: str,
    labels: Mapping[str, Labels],
    ways: Mapping[str, Mapping[str, set[tuple[int, int]]]],
    remarks: list[str],
) -> dict[str, Any]:
    _, namespace, name = end.split("/", 2)
    spec: dict[str, Any] = {"podSelector": {"matchLabels": dict(labels[end])}, "policyTypes": []}
    for way, key in (("ingress", "from"), ("egress", "to")):
        if way in ways:
            spec["policyTypes"].append(way.capitalize())
            spec[way] = [
                {key: [_peer(peer, namespace, labels) for peer in peers], "ports": _ports(ports)}
                for ports, peers in _by_ports(ways[way]).items()
            ]
    return _object(namespace, _policy_name(name), spec, remarks)


def _policy_name(workload: str) -> str:
    """Another one for each workload, and never that of the isolation."""
    name = f"recommended-{workload}"
    if name != DENY and len(name) <= _NAME_MOST:
        return name
    digest = hashlib.sha256(workload.encode()).hexdigest()[:8]
    return f"{name[: _NAME_MOST - 9].rstrip('-.')}-{digest}"


def _by_ports(peers: Mapping[str, set[tuple[int, int]]]) -> dict[tuple[tuple[int, int], ...], list[str]]:
    """Peers that have the same ports are one rule."""
    names_by_ports: dict[tuple[tuple[int, int], ...], list[str]] = defaultdict(list)
    for peer, ports in sorted(peers.items()):
        names_by_ports[tuple(sorted(ports))].append(peer)
    return dict(sorted(names_by_ports.items()))


def _ports(ports: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"protocol": PROTOCOLS[protocol], "port": port} for protocol, port in ports]


def _peer(end: str, namespace: str, labels: Mapping[str, Labels]) -> dict[str, Any]:
    kind, _, rest = end.partition("/")
    if kind == "address":
        address = ipaddress.ip_address(rest)
        return {"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}
    peer: dict[str, Any] = {"podSelector": {"matchLabels": dict(labels[end])}}
    if (other := rest.partition("/")[0]) != namespace:
        peer["namespaceSelector"] = {"matchLabels": {NAMESPACE_LABEL: other}}
    return peer


def _object(namespace: str, name: str, spec: dict[str, Any], remarks: list[str]) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": namespace}
    if remarks:
        more = [f"and {len(remarks) - MAX_NAMED} more"] if len(remarks) > MAX_NAMED else []
        meta["annotations"] = {FLOWS: "; ".join((*remarks[:MAX_NAMED], *more))}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def _name(end: str) -> str:
    return end.partition("/")[2]

"""Random clusters with policies of all kinds, and packets in them: what the explanation is held against a switch with.

Everything is drawn from the Random that is given, so that a seed repeats it and hypothesis shrinks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from policy_admin import admin_policies

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

Object = dict[str, Any]
Cluster = dict[str, list[Object]]
"""Lists of objects, by field of antrea.explain.objects.Objects."""
SPACES = ("a", "b", "c")
PLACES = (
    *(
        (space, f"p{number}", "n1", 0, number)
        for space, number in (("a", 11), ("a", 12), ("b", 13), ("c", 14))
    ),
    *((space, f"f{number}", "n2", 1, number) for space, number in (("a", 11), ("b", 12), ("c", 13))),
)
"""Namespace, name, Node, its number, last part of the addresses."""
OUTSIDE = (("203.0.113.1", "2001:db8::1"), ("203.0.113.130", "2001:db8:1::1"))
HOSTS = (("192.0.2.1", ""), ("192.0.2.2", ""), ("10.10.0.1", "fd00:10::1"), ("10.10.1.1", "fd00:10:1::1"))
"""Of Nodes n1 and n2: their own addresses, then those of their gateways."""
BLOCKS = (
    ("10.10.1.0/24", ()),
    ("203.0.113.0/24", ("203.0.113.128/25",)),
    ("2001:db8::/32", ("2001:db8:1::/48",)),
    ("10.0.0.0/8", ("10.10.0.0/24", "10.10.1.12/32")),
    ("fd00:10::/48", ("fd00:10:1::/64",)),
    ("0.0.0.0/0", ()),
    ("192.0.2.0/24", ()),
)
SERVICES = (
    ("svc", "b", "10.96.0.10", "fd00:96::10"),
    ("twin", "b", "10.96.0.11", "fd00:96::11"),
    ("own", "a", "10.96.0.12"),
    ("headless", "a", "None"),
    ("elsewhere", "b", ""),
)
"""Name, Namespace, cluster IPs."""
TIERS = ("", "emergency", "Emergency", "mine", "application", "late", "baseline", "Baseline", "baseline")
GROUPS = ("g1", "g2", "g3")


class Question(NamedTuple):
    """A packet by the words of `antctl explain`."""

    source: str
    """namespace/name of a Pod, or an address."""
    destination: str
    v: int
    protocol: str
    port: int | None
    source_port: int | None
    icmp: tuple[int, int] | None


class Draw:
    """Parts of objects, by chance."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd

    def some(self, make: Callable[[], Any], low: int, high: int) -> list[Any]:
        return [make() for _ in range(self.rnd.randint(low, high))]

    def chance(self, percent: int) -> bool:
        return self.rnd.randint(1, 100) <= percent

    def labels(self) -> dict[str, str]:
        return {key: self.rnd.choice("12") for key in ("app", "role") if self.chance(75)}

    def selector(self) -> Object:
        """Nothing, exact labels or an expression."""
        kind = self.rnd.randint(0, 5)
        if kind == 0:
            return {}
        if kind <= 3:
            return {"matchLabels": {self.rnd.choice(("app", "role")): self.rnd.choice("12")}}
        operator = self.rnd.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        one: Object = {"key": self.rnd.choice(("app", "role")), "operator": operator}
        if operator in ("In", "NotIn"):
            one["values"] = sorted(set(self.some(lambda: self.rnd.choice("12"), 1, 2)))
        return {"matchExpressions": [one]}

    def spaces(self) -> Object:
        """A selector of Namespaces; one by name at times."""
        if self.chance(30):
            return {"matchLabels": {"kubernetes.io/metadata.name": self.rnd.choice(SPACES)}}
        return self.selector()

    def block(self) -> Object:
        cidr, holes = self.rnd.choice(BLOCKS)
        return {"cidr": cidr, **({"except": list(holes)} if holes and self.chance(70) else {})}

    def port(self, *, native: bool) -> Object:
        """By number, name, range or nothing; Antrea's own rules have source ports, too."""
        protocol = self.rnd.choice(("TCP", "TCP", "UDP", "SCTP"))
        found: Object = {"protocol": protocol}
        kind = self.rnd.randint(0, 6)
        if kind <= 2:
            found["port"] = self.rnd.choice((80, 80, 8080, 53))
        elif kind <= 4:
            found["port"] = self.rnd.choice(("http", "http", "dns"))
        elif kind == 5:
            found |= {"port": 8080, "endPort": self.rnd.choice((8080, 8085, 8090))}
        if native and self.chance(20):
            found["sourcePort"] = 1024
            if self.chance(50):
                found["sourceEndPort"] = 5000
        return found

    def protocol(self) -> Object:
        """ICMP, with or without type and code; IGMP, which no such packet is."""
        if self.chance(15):
            return {"igmp": {"igmpType": 17}}
        found: Object = {}
        if self.chance(70):
            found["icmpType"] = self.rnd.choice((8, 3, 128, 1))
            if self.chance(50):
                found["icmpCode"] = self.rnd.choice((0, 1))
        return {"icmp": found}


def cluster(rnd: random.Random) -> Cluster:
    """Pods, what else has addresses, groups, tiers and policies."""
    draw = Draw(rnd)
    return {
        "namespaces": [_namespace(draw, name) for name in SPACES],
        "pods": [*(_pod(draw, *place) for place in PLACES), *_quiet_pods()],
        "nodes": [_node(draw, name, number) for number, name in enumerate(("n1", "n2"))],
        "services": [_service(draw, name, space, *ips) for name, space, *ips in SERVICES],
        "entities": [_entity(draw)],
        "tiers": [_meta("mine", spec={"priority": 120}), _meta("late", spec={"priority": 252})],
        "cluster_groups": [_meta(name, spec=_group(draw, "")) for name in GROUPS if draw.chance(90)],
        "groups": [_meta(name, space, spec=_group(draw, space)) for space in ("a", "b") for name in GROUPS],
        "kube_policies": [_kube(draw, number) for number in range(rnd.randint(0, 3))],
        "cluster_policies": [_native(draw, "", number) for number in range(rnd.randint(0, 9))],
        "policies": [_native(draw, rnd.choice(("a", "b")), number) for number in range(rnd.randint(0, 6))],
        **admin_policies(draw),
    }


def _meta(name: str, space: str = "", **more: Any) -> Object:
    meta: Object = {"name": name, "uid": f"uid-{space}-{name}", "generation": 1}
    if space:
        meta["namespace"] = space
    return {"metadata": meta, **more}


def _namespace(draw: Draw, name: str) -> Object:
    """Some want lines on what their policies decide."""
    labels = {"kubernetes.io/metadata.name": name, **draw.labels()}
    logged = {"annotations": {"networkpolicy.antrea.io/enable-logging": "true"}} if draw.chance(30) else {}
    return {"metadata": {"name": name, "labels": labels, **logged}}


def ips(number: int, last: int) -> tuple[str, str]:
    """Of a Pod on Node `number`."""
    return f"10.10.{number}.{last}", f"fd00:10:{number}::{last:x}" if number else f"fd00:10::{last:x}"


def _pod(draw: Draw, space: str, name: str, node: str, number: int, last: int) -> Object:
    ports = [
        {"name": name, "containerPort": port, "protocol": protocol}
        for name, protocol, choices in (
            ("http", "TCP", (80, 8080, 0)),
            ("dns", "UDP", (53, 0)),
            ("http", "UDP", (80, 0, 0)),
            ("http", "TCP", (8085, 0, 0)),
        )
        if (port := draw.rnd.choice(choices))
    ]
    found = _meta(name, space)
    found["metadata"]["labels"] = draw.labels()
    account = draw.rnd.choice(("default", "sa"))
    found["spec"] = {"nodeName": node, "serviceAccountName": account, "containers": [{"ports": ports}]}
    found["status"] = {"phase": "Running", "podIPs": [{"ip": ip} for ip in ips(number, last)]}
    return found


def _quiet_pods() -> list[Object]:
    """One that has ended, whose address another has by now; one on its Node's network; one without an address."""
    ended, host, waiting = (_meta(name, "a") for name in ("ended", "host", "waiting"))
    for one in (ended, host, waiting):
        one["metadata"]["labels"] = {"app": "1", "role": "1"}
    ended |= {"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded", "podIPs": [{"ip": "10.10.0.12"}]}}
    host |= {"spec": {"nodeName": "n2", "hostNetwork": True}, "status": {"podIPs": [{"ip": "192.0.2.2"}]}}
    waiting |= {"spec": {}, "status": {"phase": "Pending"}}
    return [ended, host, waiting]


def _node(draw: Draw, name: str, number: int) -> Object:
    found = _meta(name)
    found["metadata"]["labels"] = draw.labels()
    cidrs = [f"10.10.{number}.0/24", "fd00:10:1::/64" if number else "fd00:10::/64"]
    found["spec"] = {"podCIDR": cidrs[0], "podCIDRs": cidrs}
    found["status"] = {"addresses": [{"type": "InternalIP", "address": HOSTS[number][0]}]}
    return found


def _service(draw: Draw, name: str, space: str, *ips: str) -> Object:
    """Those of an address outside are reached there, too."""
    ports = [
        (80, "TCP"),
        *draw.some(lambda: draw.rnd.choice(((8080, "TCP"), (53, "UDP"), (80, "SCTP"))), 0, 2),
    ]
    spec: Object = {
        "type": "ExternalName" if name == "elsewhere" else "ClusterIP",
        "selector": draw.labels(),
        "clusterIPs": [ip for ip in ips if ip],
        "ports": [{"port": port, "protocol": protocol} for port, protocol in dict.fromkeys(ports)],
    }
    found = _meta(name, space, spec=spec)
    if draw.chance(30):
        spec["externalIPs"] = [draw.rnd.choice(OUTSIDE[0])]
    if draw.chance(30):
        mode = draw.rnd.choice(("VIP", "VIP", "Proxy"))
        ingress = [{"ip": draw.rnd.choice(OUTSIDE[1]), "ipMode": mode}, {"hostname": "lb.example.com"}]
        found["status"] = {"loadBalancer": {"ingress": ingress}}
    return found


def _entity(draw: Draw) -> Object:
    found = _meta("e", "a")
    found["metadata"]["labels"] = draw.labels()
    ports = [{"name": "http", "protocol": "TCP", "port": draw.rnd.choice((80, 8080))}]
    found["spec"] = {"endpoints": [{"ip": ip} for ip in OUTSIDE[0]], "ports": ports}
    return found


def _group(draw: Draw, space: str) -> Object:
    kind = draw.rnd.randint(0, 7)
    if kind == 0:
        return {"childGroups": sorted(set(draw.some(lambda: draw.rnd.choice(GROUPS), 1, 2)))}
    if kind == 1:
        return {"ipBlocks": draw.some(draw.block, 1, 2)}
    if kind == 2:
        return {"serviceReference": {"name": "svc", "namespace": "b"}}
    if kind == 3:
        return {"externalEntitySelector": draw.selector()}
    if kind == 4 and not space:
        return {"nodeSelector": draw.selector()}
    found = {"podSelector": draw.selector()}
    if draw.chance(15 if space else 50):
        found["namespaceSelector"] = draw.spaces()
    return found


def _dated(draw: Draw, found: Object) -> Object:
    """Some policies are of the same second."""
    found["metadata"]["creationTimestamp"] = f"2026-01-0{draw.rnd.randint(1, 3)}T00:00:00Z"
    found["metadata"]["uid"] = f"{draw.rnd.randint(0, 9)}-{found['metadata']['uid']}"
    return found


# policies of Kubernetes


def _kube(draw: Draw, number: int) -> Object:
    sides = draw.rnd.choice((("Ingress",), ("Egress",), ("Ingress", "Egress")))
    spec: Object = {"podSelector": draw.selector(), "policyTypes": list(sides)}
    for side in sides:
        spec[side.lower()] = [_kube_rule(draw, side) for _ in range(draw.rnd.randint(0, 2))]
    return _dated(draw, _meta(f"k{number}", draw.rnd.choice(SPACES), spec=spec))


def _kube_rule(draw: Draw, side: str) -> Object:
    return {
        "from" if side == "Ingress" else "to": draw.some(lambda: _kube_peer(draw), 0, 2),
        "ports": draw.some(lambda: draw.port(native=False), 0, 2),
    }


def _kube_peer(draw: Draw) -> Object:
    kind = draw.rnd.randint(0, 3)
    if kind == 0:
        return {"ipBlock": draw.block()}
    found: Object = {}
    if kind != 1:
        found["podSelector"] = draw.selector()
    if kind != 2:
        found["namespaceSelector"] = draw.spaces()
    return found


# Antrea's own


def _native(draw: Draw, space: str, number: int) -> Object:
    tier = draw.rnd.choice(TIERS)
    own = draw.chance(30)
    spec: Object = {"priority": draw.rnd.choice((1, 5, 5, 5.5)), "tier": tier}
    if not own:
        spec["appliedTo"] = draw.some(lambda: _applied(draw, space), 1, 2)
    services = 80 if draw.chance(40) else 10
    for side in ("ingress", "egress"):
        rules = range(draw.rnd.randint(0, 3))
        spec[side] = [_native_rule(draw, space, side, tier, own=own, services=services) for _ in rules]
    return _dated(draw, _meta(f"{'d' if space else 'c'}{number}", space, spec=spec))


def _applied(draw: Draw, space: str) -> Object:
    kind = draw.rnd.randint(0, 9)
    if kind == 0:
        return {"group": draw.rnd.choice(GROUPS)}
    if space:
        return {"podSelector": draw.selector()}
    if kind == 1:
        return {
            "serviceAccount": {
                "name": draw.rnd.choice(("default", "sa")),
                "namespace": draw.rnd.choice(SPACES),
            }
        }
    if kind == 2:
        return {"nodeSelector": draw.selector()}
    if kind == 3:
        return {"service": {"name": "svc", "namespace": "b"}}
    if kind == 4:
        return {"namespaceSelector": draw.spaces()}
    found: Object = {"podSelector": draw.selector()}
    if draw.chance(60):
        found["namespaceSelector"] = draw.spaces()
    return found


def _native_rule(draw: Draw, space: str, side: str, tier: str, *, own: bool, services: int) -> Object:
    """`services` is the chance in percent that what is sent is told by Services."""
    actions = (
        ("Allow", "Drop", "Reject") if tier.lower() == "baseline" else ("Allow", "Drop", "Pass", "Reject")
    )
    rule: Object = {"action": draw.rnd.choice(actions), "name": f"r{draw.rnd.randint(0, 99)}"}
    rule["ports"] = draw.some(lambda: draw.port(native=True), 0, 3) if draw.chance(60) else []
    if draw.chance(20):
        rule["protocols"] = [draw.protocol()]
    if draw.chance(30):
        rule["enableLogging"] = True
    if own:
        rule["appliedTo"] = draw.some(lambda: _applied(draw, space), 1, 2)
    if side == "egress" and draw.chance(services):
        if draw.chance(90):
            rule |= {"ports": [], "protocols": []}
        rule["toServices"] = draw.some(lambda: _to_service(draw, space), 1, 3)
        return rule
    rule["from" if side == "ingress" else "to"] = draw.some(lambda: _peer(draw, space, side), 0, 2)
    if draw.chance(4):
        rule["l7Protocols"] = [{"http": {"method": "GET"}}]
    return rule


def _to_service(draw: Draw, space: str) -> Object:
    """One that is there; one that is not; one of several clusters, which nobody has built."""
    name, home, *_ = draw.rnd.choice((*SERVICES, *SERVICES[:2], *SERVICES[:2], ("gone", "a")))
    found = {"name": name, "namespace": home}
    if space == home and draw.chance(50):
        del found["namespace"]
    return {**found, "scope": "ClusterSet"} if draw.chance(5) else found


def _peer(draw: Draw, space: str, side: str) -> Object:
    kind = draw.rnd.randint(0, 13)
    if kind <= 1:
        return {"ipBlock": draw.block()}
    if kind <= 3:
        return {"group": draw.rnd.choice(GROUPS)}
    if kind == 4:
        return {"nodeSelector": draw.selector()}
    if kind == 5:
        return {"externalEntitySelector": draw.selector()}
    if kind == 6 and side == "egress":
        return {"fqdn": "*.example.com"}
    if kind in (7, 8) and not space:
        relation = draw.rnd.choice(
            ({"match": "Self"}, {"sameLabels": ["app"]}, {"sameLabels": ["app", "role"]})
        )
        return {"namespaces": relation, **({"podSelector": draw.selector()} if draw.chance(50) else {})}
    if kind == 9 and not space:
        return {
            "serviceAccount": {
                "name": draw.rnd.choice(("default", "sa")),
                "namespace": draw.rnd.choice(SPACES),
            }
        }
    found: Object = (
        {"podSelector": draw.selector()} if draw.chance(80) else {"namespaceSelector": draw.spaces()}
    )
    if draw.chance(50):
        found["namespaceSelector"] = draw.spaces()
    return found


# packets


def question(rnd: random.Random) -> Question:
    """A packet that this Node, n1, sends or receives for a Pod."""
    here = [f"{space}/{name}" for space, name, node, *_ in PLACES if node == "n1"]
    there = [f"{space}/{name}" for space, name, node, *_ in PLACES if node == "n2"]
    v = rnd.choice((4, 4, 6))
    family = v == 6
    outside = [pair[family] for pair in OUTSIDE]
    hosts: Sequence[str] = [pair[family] for pair in HOSTS if pair[family]]
    source = rnd.choice((*here, *here, *there, *outside, HOSTS[3][family]))
    services = [ip for _, _, *ips in SERVICES for ip in ips if ip != "None" and (":" in ip) == family and ip]
    choices = here if source not in here else (*here, *there, *outside, *hosts)
    destination = rnd.choice([one for one in choices if one != source])
    protocol = rnd.choice(("TCP", "TCP", "TCP", "UDP", "SCTP", "ICMP"))
    if source in here and rnd.random() < 0.25:
        destination = rnd.choice((*services, *outside))
        if rnd.random() < 0.5:
            return Question(source, destination, v, "TCP", 80, 33000, None)
    if protocol == "ICMP":
        kind = rnd.choice((128, 1, 3)) if family else rnd.choice((8, 3, 11))
        return Question(source, destination, v, protocol, None, None, (kind, rnd.choice((0, 1))))
    port = rnd.choice((80, 80, 8080, 8081, 8085, 8090, 8091, 53))
    return Question(source, destination, v, protocol, port, rnd.choice((1024, 5000, 33000)), None)

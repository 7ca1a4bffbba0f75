"""Random policies of policy.networking.k8s.io for random clusters, with parts that no version of the API knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policy_cluster import Draw

Object = dict[str, Any]
NETWORKS = (
    "10.10.1.0/24",
    "203.0.113.0/24",
    "2001:db8::/32",
    "fd00:10::/48",
    "0.0.0.0/0",
    "192.0.2.0/24",
    "010.0.0.0/8",
)
"""The last has a leading zero, which nobody reads."""
NAMES = ("*.example.com", "www.example.com", "example.com.", "WWW.Example.COM")
ODD = 3
"""Percent of what has no field that is known."""


def admin_policies(draw: Draw) -> dict[str, list[Object]]:
    """Of all three kinds; most clusters have some."""
    if draw.chance(25):
        return {"admin_policies": [], "baseline_policies": [], "tiered_policies": []}
    return {
        "admin_policies": [_admin(draw, number) for number in range(draw.rnd.randint(0, 3))],
        "baseline_policies": [_baseline(draw)] if draw.chance(50) else [],
        "tiered_policies": [_tiered(draw, number) for number in range(draw.rnd.randint(0, 4))],
    }


def _admin(draw: Draw, number: int) -> Object:
    spec = {"priority": draw.rnd.choice((0, 5, 5, 1000)), **_rules(draw, ("Allow", "Deny", "Pass"), "ports")}
    return _policy(draw, f"n{number}", spec)


def _baseline(draw: Draw) -> Object:
    return _policy(draw, "default", _rules(draw, ("Allow", "Deny"), "ports", names=False))


def _tiered(draw: Draw, number: int) -> Object:
    spec = {
        "tier": draw.rnd.choice(("Admin", "Baseline")),
        "priority": draw.rnd.choice((0, 5, 5, 1000)),
        **_rules(draw, ("Accept", "Deny", "Pass"), "protocols"),
    }
    return _policy(draw, f"t{number}", spec)


def _policy(draw: Draw, name: str, spec: Object) -> Object:
    uid = f"{draw.rnd.randint(0, 9)}-uid-admin-{name}"
    day = draw.rnd.randint(1, 3)
    meta = {
        "name": name,
        "uid": uid,
        "generation": 1,
        "creationTimestamp": f"2026-01-0{day}T00:00:00Z",
    }
    return {"metadata": meta, "spec": {"subject": _group(draw), **spec}}


def _rules(draw: Draw, actions: tuple[str, ...], ports: str, *, names: bool = True) -> Object:
    found: Object = {}
    for side, field in (("ingress", "from"), ("egress", "to")):
        found[side] = [_rule(draw, actions, ports, field, names=names) for _ in range(draw.rnd.randint(0, 3))]
    return found


def _rule(draw: Draw, actions: tuple[str, ...], ports: str, field: str, *, names: bool) -> Object:
    rule: Object = {"action": draw.rnd.choice(actions), "name": f"r{draw.rnd.randint(0, 99)}"}
    rule[field] = draw.some(lambda: _peer(draw, egress=field == "to", names=names), 1, 2)
    if draw.chance(60):
        rule[ports] = draw.some(lambda: _port(draw) if ports == "ports" else _protocol(draw), 1, 3)
    return rule


def _group(draw: Draw) -> Object:
    """Whom a policy is for, and most peers."""
    if draw.chance(ODD):
        return {"later": {}}
    if draw.chance(40):
        return {"namespaces": draw.spaces()}
    spaces = {"namespaceSelector": draw.spaces()} if draw.chance(60) else {}
    return {"pods": {"podSelector": draw.selector(), **spaces}}


def _peer(draw: Draw, *, egress: bool, names: bool) -> Object:
    kind = draw.rnd.randint(0, 9) if egress else 9
    if kind == 0:
        return {"nodes": draw.selector()}
    if kind <= 3:
        few = draw.rnd.sample(NETWORKS[:-1], draw.rnd.randint(1, 2))
        return {"networks": [*few, *([NETWORKS[-1]] if draw.chance(ODD) else [])]}
    if kind == 4 and names:
        return {"domainNames": draw.rnd.sample(NAMES, draw.rnd.randint(1, 2))}
    return _group(draw)


def _port(draw: Draw) -> Object:
    """Of v1alpha1."""
    kind = draw.rnd.randint(0, 5)
    if draw.chance(ODD):
        return {"later": {}}
    protocol = {"protocol": draw.rnd.choice(("TCP", "TCP", "UDP", "SCTP"))} if draw.chance(80) else {}
    if kind <= 2:
        return {"portNumber": {"port": draw.rnd.choice((80, 80, 8080, 53)), **protocol}}
    if kind <= 4:
        return {"namedPort": draw.rnd.choice(("http", "http", "dns"))}
    return {"portRange": {"start": 8080, "end": draw.rnd.choice((8079, 8085, 8090)), **protocol}}


def _protocol(draw: Draw) -> Object:
    """Of v1alpha2."""
    kind = draw.rnd.randint(0, 5)
    if draw.chance(ODD):
        return draw.rnd.choice(({"later": {}}, {"tcp": {}}, {"udp": {"destinationPort": {}}}))
    if kind <= 1:
        return {"destinationNamedPort": draw.rnd.choice(("http", "http", "dns"))}
    protocol = draw.rnd.choice(("tcp", "tcp", "udp", "sctp"))
    if kind <= 4:
        return {protocol: {"destinationPort": {"number": draw.rnd.choice((80, 80, 8080, 53))}}}
    return {
        protocol: {"destinationPort": {"range": {"start": 8080, "end": draw.rnd.choice((8079, 8085, 8090))}}}
    }

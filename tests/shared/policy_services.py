"""Endpoints for the Services of a random cluster, settings of AntreaProxy, and packets to these Services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policy_cluster import HOSTS, OUTSIDE, PLACES, Draw, Question, ips, question

from antrea.explain.world import Proxy

if TYPE_CHECKING:
    import random

    from policy_cluster import Cluster, Object

ZONES = ("east", "west")
OTHER_PROXY = "mesh"
RANGES = ("10.10.0.11/32", "10.10.0.12/30", "fd00:10::/124", " 203.0.113.0/24 ", "no network")
NODE_PORT = 30000
"""The first."""
MODES = ("nat", "dsr", " DSR", "other")
SKIPPED = ((), (), (), ("b/twin",), ("10.96.0.12",), ("fd00:96::10",))


def served(rnd: random.Random, found: Cluster) -> Proxy:
    """Add EndpointSlices and what AntreaProxy reads of Services and Nodes; the settings of AntreaProxy."""
    draw = Draw(rnd)
    for node in found["nodes"]:
        if draw.chance(80):
            node["metadata"].setdefault("labels", {})["topology.kubernetes.io/zone"] = rnd.choice(ZONES)
    slices: list[Object] = []
    for service in found["services"]:
        _chosen_by(draw, service)
        if service["metadata"]["name"] != "elsewhere":
            slices += _slices(draw, service)
    found["endpoint_slices"] = slices
    _asked_at_nodes(draw, found)
    _as_admitted(draw, found)
    everything = draw.chance(60)
    return Proxy(
        frozenset(rnd.choice(SKIPPED)),
        OTHER_PROXY if draw.chance(5) else "",
        all_addresses=everything,
        balanced_addresses=draw.chance(80),
        node_hints=draw.chance(40),
        direct_default=rnd.choice(("", "nat", "dsr")) if everything else "",
    )


def _asked_at_nodes(draw: Draw, found: Cluster) -> None:
    """NodePorts, and by whom what comes to them is answered."""
    number = NODE_PORT
    for service in found["services"]:
        if "None" in service["spec"]["clusterIPs"] or draw.chance(30):
            continue
        for port in service["spec"]["ports"]:
            port["nodePort"] = number
            number += 1
        if draw.chance(50):
            mode = {"service.antrea.io/load-balancer-mode": draw.rnd.choice(MODES)}
            service["metadata"].setdefault("annotations", {}).update(mode)


def _as_admitted(draw: Draw, found: Cluster) -> None:
    """Policies for Services are for nothing else, and have ingress rules alone.

    Those let in or refuse everybody: a trace does not show from whom a connection came before its translation.
    """
    for policy in found["cluster_policies"]:
        spec = policy["spec"]
        if "appliedTo" in spec and _is_for_services(draw, spec):
            spec["egress"] = []
            for rule in spec["ingress"]:
                rule["from"] = []
        for rule in spec["ingress"]:
            if "appliedTo" in rule and _is_for_services(draw, rule):
                rule["from"] = []
        spec["egress"] = [
            rule for rule in spec["egress"] if not any("service" in one for one in rule.get("appliedTo", ()))
        ]


def _is_for_services(draw: Draw, found: Object) -> bool:
    services = [one for one in found["appliedTo"] if "service" in one]
    others = [one for one in found["appliedTo"] if "service" not in one]
    chosen = services if services and (not others or draw.chance(50)) else others
    found["appliedTo"] = chosen
    return chosen is services


def _chosen_by(draw: Draw, service: Object) -> None:
    """Fields on which the choice of an Endpoint depends."""
    spec = service["spec"]
    if draw.chance(8):
        service["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": OTHER_PROXY}
    service["metadata"]["creationTimestamp"] = f"2026-01-0{draw.rnd.randint(1, 3)}T00:00:00Z"
    if draw.chance(25):
        spec["internalTrafficPolicy"] = "Local"
    if draw.chance(25):
        spec["externalTrafficPolicy"] = "Local"
    if draw.chance(25):
        spec["loadBalancerSourceRanges"] = draw.some(lambda: draw.rnd.choice(RANGES), 1, 3)
    if draw.chance(30):
        spec["sessionAffinity"] = "ClientIP"
        if draw.chance(50):
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 600}}
    named = len(spec["ports"]) > 1 or draw.chance(50)
    for port in spec["ports"] if named else ():
        port["name"] = f"{port['protocol'].lower()}-{port['port']}"


def _slices(draw: Draw, service: Object) -> list[Object]:
    """None, or up to two of each family, which may share an Endpoint while they are rebuilt."""
    return [
        _slice(draw, service, number, v6=bool(v6))
        for v6 in (0, 1)
        for number in range(draw.rnd.choice((0, 1, 1, 2)))
    ]


def _slice(draw: Draw, service: Object, number: int, *, v6: bool) -> Object:
    meta = service["metadata"]
    ports: list[Object] = []
    for port in service["spec"]["ports"]:
        if draw.chance(90):
            one = {"port": draw.rnd.choice((80, 8080, 8085, 53)), "protocol": port["protocol"]}
            ports.append({**one, **({"name": port["name"]} if "name" in port else {})})
    pods: list[tuple[str, str | None]] = [(ips(node, last)[v6], name) for _, _, name, node, last in PLACES]
    others: list[tuple[str, str | None]] = [(pair[v6], None) for pair in OUTSIDE]
    others += [(pair[v6], f"n{at % 2 + 1}") for at, pair in enumerate(HOSTS) if pair[v6] and at < 2]
    wanted = draw.rnd.sample(pods, draw.rnd.randint(0, 3))
    if draw.chance(15):
        wanted.append(draw.rnd.choice(others))
    hinted = draw.rnd.choice((0, 0, 50, 100))
    return {
        "metadata": {
            "name": f"{meta['name']}-{'six' if v6 else 'four'}-{number}",
            "namespace": meta["namespace"],
            "labels": {"kubernetes.io/service-name": meta["name"]},
        },
        "addressType": "IPv6" if v6 else "IPv4",
        "ports": ports,
        "endpoints": [_endpoint(draw, ip, node, hinted) for ip, node in wanted],
    }


def _endpoint(draw: Draw, ip: str, node: str | None, hinted: int) -> Object:
    conditions: dict[str, Any] = draw.rnd.choice(
        (
            {},
            {"ready": True},
            {"ready": True},
            {"ready": True, "serving": True, "terminating": False},
            {"ready": False},
            {"ready": False, "serving": True, "terminating": True},
            {"ready": False, "serving": False, "terminating": True},
        )
    )
    found: Object = {"addresses": [ip], "conditions": conditions}
    if node and draw.chance(95):
        found["nodeName"] = node
    if draw.chance(hinted):
        found["hints"] = {"forZones": [{"name": draw.rnd.choice(ZONES)}]}
        if draw.chance(50):
            found["hints"]["forNodes"] = [{"name": draw.rnd.choice(("n1", "n2"))}]
    return found


def service_question(rnd: random.Random, found: Cluster) -> Question:
    """A packet to a port of a Service, three times of four; else any."""
    if rnd.random() < 0.25:
        return question(rnd)
    if rnd.random() < 0.4 and (asked := _node_port_question(rnd, found)) is not None:
        return asked
    sources = [f"{space}/{name}" for space, name, node, *_ in PLACES if node == "n1"]
    targets = [
        (ip, port["protocol"], port["port"])
        for service in found["services"]
        for ip in (*service["spec"]["clusterIPs"], *_external(service))
        if ip != "None"
        for port in service["spec"]["ports"]
    ]
    if not targets:
        return question(rnd)
    ip, protocol, port = rnd.choice(targets)
    port = port if rnd.random() < 0.9 else 81
    v = 6 if ":" in ip else 4
    return Question(rnd.choice(sources), ip, v, protocol, port, rnd.choice((1024, 5000, 33000)), None)


def _node_port_question(rnd: random.Random, found: Cluster) -> Question | None:
    """Of a host outside, to a NodePort of Node n1."""
    numbers = [
        (port["protocol"], port["nodePort"])
        for service in found["services"]
        for port in service["spec"]["ports"]
        if "nodePort" in port
    ]
    if not numbers:
        return None
    protocol, number = rnd.choice(numbers)
    return Question(rnd.choice(OUTSIDE)[0], HOSTS[0][0], 4, protocol, number, rnd.choice((1024, 5000)), None)


def _external(service: Object) -> list[str]:
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    return [*service["spec"].get("externalIPs", ()), *(one["ip"] for one in ingress if "ip" in one)]

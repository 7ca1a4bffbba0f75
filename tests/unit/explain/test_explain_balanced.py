"""What an explanation says of packets to Services that AntreaProxy serves: it chooses an Endpoint, then policies judge that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from explain_world import NODES, Object, ask, kube, native, rule, world

from antrea.errors import Invalid
from antrea.explain.world import Proxy, World

if TYPE_CHECKING:
    from antrea.apis.core import Service

ON = Proxy()
IP = "10.96.0.10"
CLIENT = [{"podSelector": {"matchLabels": {"app": "client"}}}]
ZONE = "topology.kubernetes.io/zone"


def service(name: str = "svc", ip: str = IP, space: str = "a", **more: Any) -> Object:
    spec = {"clusterIPs": [ip], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], **more}
    return {"metadata": {"namespace": space, "name": name}, "spec": spec}


def end(ip: str, node: str, **more: Any) -> Object:
    return {"addresses": [ip], "nodeName": node, **more}


def endpoints(*rows: Object, name: str = "svc", port: int | None = 8080) -> Object:
    labels = {"kubernetes.io/service-name": name}
    ports = [{"name": "http", "port": port}]
    return {"metadata": {"namespace": "a", "name": name, "labels": labels}, "ports": ports, "endpoints": rows}


WEB, DB = end("10.0.0.12", "n1"), end("10.0.1.13", "n2")
BOTH = [endpoints(WEB, DB)]


def chosen(proxy: Proxy = ON, slices: list[Object] = BOTH, **more: Any) -> list[tuple[str, int]]:
    """Endpoints of the Service `svc`, as the client's Node chooses among them."""
    found = ask(world(proxy, services=[service(**more)], endpoint_slices=slices), destination=IP)
    assert found.through is not None
    return [(one.endpoint, one.port) for one in found.through.endpoints]


def test_the_verdict_is_that_of_the_endpoint_that_is_chosen() -> None:
    closed = kube("closed", space="b", podSelector={}, policyTypes=["Ingress"])
    there = world(ON, services=[service()], endpoint_slices=BOTH, kube_policies=[closed])
    found = ask(there, destination="a/svc")
    assert found.through is not None
    assert [(one.endpoint, one.verdict) for one in found.through.endpoints] == [
        ("a/web", "Allow"),
        ("b/db", "Drop"),
    ]
    assert (found.verdict, found.packet.destination_ip, found.sentence) == (
        "Depends",
        IP,
        "If Endpoint b/db is chosen: Pod b/db is isolated for Ingress by NetworkPolicy b/closed, and no rule allows it.".replace(
            "for Ingress", "for ingress"
        ),
    )
    alone = world(ON, services=[service()], endpoint_slices=[endpoints(DB)], kube_policies=[closed])
    assert ask(alone, destination=IP).verdict == "Drop"


def test_a_service_without_an_endpoint_is_rejected_before_any_policy() -> None:
    drop = native("p", egress=[rule("Drop")], appliedTo=CLIENT)
    for slices in (
        [],
        [endpoints(end("10.0.0.12", "n1", conditions={"ready": False}))],
        [endpoints(WEB, port=None)],
    ):
        there = world(ON, services=[service()], endpoint_slices=slices, cluster_policies=[drop])
        found = ask(there, destination=IP)
        assert (found.verdict, found.egress.reason, found.sentence, found.changes) == (
            "Reject",
            "no Endpoint",
            "Service a/svc has no ready Endpoints: AntreaProxy rejects the packet before any policy is asked.",
            (),
        )


def test_a_port_that_no_service_has_is_rejected_after_policies_where_all_addresses_are_served() -> None:
    text = f"TCP port 81 of {IP} is not among those of Service a/svc: AntreaProxy rejects the packet."
    drop = native("p", egress=[rule("Drop")], appliedTo=CLIENT)
    everywhere = Proxy(all_addresses=True)
    there = world(everywhere, services=[service()], endpoint_slices=BOTH)
    found = ask(there, destination=IP, port="81/tcp")
    assert (found.verdict, found.direction, found.ingress.reason, found.sentence, found.changes) == (
        "Reject",
        "Ingress",
        "no port",
        text,
        (),
    )
    assert ask(there, destination=IP, port="80/udp").verdict == "Reject"
    assert ask(there, destination=IP).verdict == "Allow"
    closed = world(everywhere, services=[service()], endpoint_slices=BOTH, cluster_policies=[drop])
    refused = ask(closed, destination=IP, port="81/tcp")
    assert (refused.verdict, refused.direction, refused.ingress.reason) == ("Drop", "Egress", "no port")
    for proxy in (None, ON, Proxy(frozenset({"a/svc"}), all_addresses=True)):
        left = world(proxy, services=[service()], endpoint_slices=BOTH)
        assert ask(left, destination=IP, port="81/tcp").verdict == "Allow"


def test_addresses_of_services_are_computed_once_for_all_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    proxied = World.proxied

    def counted(self: World, service: Service) -> set[str]:
        seen.append(service.metadata.name)
        return proxied(self, service)

    monkeypatch.setattr(World, "proxied", counted)
    there = world(Proxy(all_addresses=True), services=[service()], endpoint_slices=BOTH)
    for destination in ("203.0.113.9", "203.0.113.10", IP):
        ask(there, destination=destination, port="81/tcp")
    assert seen == ["svc"]


def test_rules_on_services_have_no_place_before_others() -> None:
    refs = [{"name": "svc", "namespace": "a"}]
    by_service = native("p", egress=[rule("Drop", toServices=refs)], appliedTo=CLIENT, priority=6)
    allow = native("first", egress=[rule("Allow")], appliedTo=CLIENT, priority=5)
    there = world(ON, services=[service()], endpoint_slices=BOTH, cluster_policies=[by_service, allow])
    found = ask(there, destination=IP)
    assert (found.verdict, [one.rule.policy for one in found.egress.lost]) == ("Allow", ["p"])
    alone = world(ON, services=[service()], endpoint_slices=BOTH, cluster_policies=[by_service])
    assert ask(alone, destination=IP).verdict == "Drop"
    assert ask(alone, destination="a/web", port="8080/tcp").verdict == "Allow"


@pytest.mark.parametrize(
    ("proxy", "labels"),
    [
        (None, {}),
        (Proxy(frozenset({"a/svc"})), {}),
        (Proxy(frozenset({IP})), {}),
        (ON, {"service.kubernetes.io/service-proxy-name": "mesh"}),
        (Proxy(name="mesh"), {}),
        (ON, {"service.kubernetes.io/headless": ""}),
    ],
    ids=["off", "skipped by name", "skipped by address", "another proxy", "own name", "headless"],
)
def test_a_service_that_antrea_proxy_does_not_serve_is_left_as_it_is(
    proxy: Proxy | None, labels: dict[str, str]
) -> None:
    one = service()
    one["metadata"]["labels"] = labels
    found = ask(world(proxy, services=[one], endpoint_slices=BOTH), destination=IP)
    assert (found.through, found.verdict) == (None, "Allow")


def test_other_ports_protocols_and_pods_are_no_business_of_the_proxy() -> None:
    there = world(ON, services=[service()], endpoint_slices=BOTH)
    for to, port in ((IP, "81/tcp"), (IP, "80/udp"), (IP, "icmp"), ("a/web", "80/tcp")):
        assert ask(there, destination=to, port=port).through is None


def test_internal_traffic_policy_local_chooses_on_the_clients_node() -> None:
    assert chosen() == [("a/web", 8080), ("b/db", 8080)]
    assert chosen(internalTrafficPolicy="Local") == [("a/web", 8080)]
    there = world(ON, services=[service(internalTrafficPolicy="Local")], endpoint_slices=[endpoints(DB)])
    assert ask(there, destination=IP).sentence == (
        "Service a/svc has no ready Endpoints on Node n1 (internalTrafficPolicy Local):"
        " AntreaProxy rejects the packet before any policy is asked."
    )


def test_a_client_with_affinity_has_any_of_the_endpoints_and_that_is_said() -> None:
    there = world(ON, services=[service(sessionAffinity="ClientIP")], endpoint_slices=BOTH)
    found = ask(there, destination=IP)
    assert found.through is not None
    assert (found.through.sticky, len(found.through.endpoints)) == (True, 2)


def test_endpoints_that_drain_are_used_where_none_is_ready() -> None:
    gone = {"ready": False, "serving": False, "terminating": True}
    for serving in (True, None):  # of whom the API says nothing, that serves
        draining = {"ready": False, "serving": serving, "terminating": True}
        rows = [
            endpoints(end("10.0.0.12", "n1", conditions=draining), end("10.0.1.13", "n2", conditions=gone))
        ]
        assert chosen(slices=rows) == [("a/web", 8080)]


def test_numbers_of_addresses_may_begin_with_zeros() -> None:
    """As in objects that the API took long ago, and takes still."""
    octets = IP.split(".")
    written = ".".join(f"0{octet}" for octet in octets)
    one = service(clusterIPs=[written])
    there = world(ON, services=[one], endpoint_slices=[endpoints(end("010.000.0.012", "n1"))])
    found = ask(there, destination=IP)
    assert found.through is not None
    assert [each.endpoint for each in found.through.endpoints] == ["a/web"]


def test_hints_for_the_zone_count_if_all_have_them_and_those_for_nodes_with_their_gate() -> None:
    def hinted(zone: str, node: str = "") -> Object:
        nodes: Object = {"forNodes": [{"name": node}]} if node else {}
        return {"hints": {"forZones": [{"name": zone}], **nodes}}

    nodes = [
        {**one, "metadata": {**one["metadata"], "labels": {ZONE: zone}}}
        for one, zone in zip(NODES, "xy", strict=True)
    ]
    rows = endpoints(end("10.0.0.12", "n1", **hinted("y", "n1")), end("10.0.1.13", "n2", **hinted("x", "n2")))
    for slices, proxy, to in (
        ([rows], ON, ["b/db"]),
        ([rows], Proxy(node_hints=True), ["a/web"]),
        ([rows, endpoints(end("10.0.9.9", "n1"))], ON, ["10.0.9.9", "a/web", "b/db"]),
    ):
        there = world(proxy, services=[service()], endpoint_slices=slices, nodes=nodes)
        found = ask(there, destination=IP)
        assert found.through is not None
        assert sorted(one.endpoint for one in found.through.endpoints) == to


def test_a_pod_behind_its_own_service_is_judged_where_it_leaves_only() -> None:
    own = [endpoints(end("10.0.0.11", "n1"))]
    closed = kube("closed", podSelector={}, policyTypes=["Ingress"])
    there = world(ON, services=[service()], endpoint_slices=own, kube_policies=[closed])
    found = ask(there, destination=IP)
    assert (found.verdict, found.ingress.sentence) == (
        "Allow",
        "A Pod reaches itself through Service a/svc whatever its ingress rules say.",
    )
    sealed = kube("sealed", podSelector={}, policyTypes=["Egress"])
    assert (
        ask(
            world(ON, services=[service()], endpoint_slices=own, kube_policies=[sealed]), destination=IP
        ).verdict
        == "Drop"
    )


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("a/none", "there is neither such a Pod nor such a Service"),
        ("a/headless", "the Service has no ClusterIP; name a Pod behind it"),
    ],
)
def test_what_is_no_service_with_an_address_is_refused(to: str, why: str) -> None:
    there = world(ON, services=[service("headless", "None")])
    with pytest.raises(Invalid, match=why):
        ask(there, destination=to)


GIVEN, EXTERNAL = "198.51.100.7", "198.51.100.9"


def outward(name: str = "svc", created: str = "", **more: Any) -> Object:
    """With an external IP, and one that a load balancer gave."""
    found = service(name, IP if name == "svc" else "10.96.0.11", externalIPs=[EXTERNAL], **more)
    found["metadata"]["creationTimestamp"] = created
    return {**found, "status": {"loadBalancer": {"ingress": [{"ip": GIVEN}]}}}


@pytest.mark.parametrize(
    ("proxy", "served"),
    [
        (ON, {GIVEN}),
        (Proxy(balanced_addresses=False), set()),
        (Proxy(all_addresses=True), {GIVEN, EXTERNAL}),
        (Proxy(all_addresses=True, balanced_addresses=False), {EXTERNAL}),
    ],
)
def test_external_addresses_are_served_by_settings_with_the_endpoints_of_all_nodes(
    proxy: Proxy, served: set[str]
) -> None:
    one = outward(internalTrafficPolicy="Local", externalTrafficPolicy="Local")
    there = world(proxy, services=[one], endpoint_slices=BOTH)
    for ip in (GIVEN, EXTERNAL):
        found = ask(there, destination=ip).through
        ends = [one.endpoint for one in found.endpoints] if found else []
        assert ends == (["a/web", "b/db"] if ip in served else [])


def test_the_older_of_two_services_has_an_address_and_nobody_that_of_a_node() -> None:
    both = [outward("svc", "2026-01-02T00:00:00Z"), outward("twin", "2026-01-01T00:00:00Z")]
    found = ask(world(Proxy(all_addresses=True), services=both), destination=EXTERNAL)
    assert found.sentence.startswith("Service a/twin has no ready Endpoints")
    node = outward()
    node["spec"]["externalIPs"] = ["192.0.2.2"]
    assert ask(world(Proxy(all_addresses=True), services=[node]), destination="192.0.2.2").through is None


@pytest.mark.parametrize(
    ("ranges", "verdict"),
    [
        (["10.0.0.0/24"], "Allow"),
        (["10.0.9.0/24"], "Drop"),
        (["fd00::/8"], "Allow"),
        (["nothing"], "Drop"),
    ],
)
def test_a_sender_outside_load_balancer_source_ranges_is_dropped(ranges: list[str], verdict: str) -> None:
    there = world(ON, services=[outward(loadBalancerSourceRanges=ranges)], endpoint_slices=BOTH)
    assert ask(there, destination=GIVEN).verdict == verdict
    assert ask(there, destination=IP).verdict == "Allow"

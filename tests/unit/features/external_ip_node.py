"""Agents of Nodes that may answer for external IPs, by their units alone; Services and their Endpoints as the API has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import core
from antrea.apis.discovery import EndpointSlice
from antrea.engine import Engine, Facts
from antrea.facts.egress import ProbedAddress
from antrea.facts.external_ip import AnsweredAddress, ExternalIPOwner, OwnClaims
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum
from antrea.facts.node import ThisNode, Transport
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.proxy.service import endpoint_rows, service_row
from antrea.features.service_external_ip.agent import FEATURE, AnnounceExternalIP, RecordAnswered
from antrea.features.service_external_ip.agent_part.claim_feed import ClaimFeed
from antrea.host.neighbour_response import NeighbourResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Act
    from antrea.facts.service import Service, ServiceEndpoint

    Conditions = Mapping[str, bool | None]

IP, IP6 = "192.0.2.40", "2001:db8::40"
NODES = ("n1", "n2", "n3")


def service(
    name: str = "web",
    ip: str = IP,
    pool: str = "p",
    *,
    preferred: str = "",
    failback: str = "",
    created: str = "",
    **spec: Any,
) -> Service:
    found = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "creationTimestamp": created,
            "annotations": {
                "service.antrea.io/external-ip-pool": pool,
                "service.antrea.io/preferred-nodes": preferred,
                "service.antrea.io/failback": failback,
            },
        },
        "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.7"]} | spec,
        "status": {"loadBalancer": {"ingress": [{"ip": ip}]}},
    }
    row = service_row(msgspec.convert(found, core.Service))
    assert row is not None
    return row


def endpoints(
    name: str, nodes: Mapping[str, Conditions], kind: str = "IPv4", ports: tuple[int, ...] = ()
) -> tuple[ServiceEndpoint, ...]:
    """One on each Node, with these conditions."""
    prefix = "10.10.0." if kind == "IPv4" else "fd00::"
    found = {
        "metadata": {
            "name": f"{name}-{kind}",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": kind,
        "endpoints": [
            {"addresses": [f"{prefix}{number}"], "nodeName": node, "conditions": conditions}
            for number, (node, conditions) in enumerate(nodes.items(), 1)
        ],
        "ports": [{"port": port} for port in ports],
    }
    return endpoint_rows(msgspec.convert(found, EndpointSlice))


class Node:
    """n1 of three, whose neighbours answer for no address but those of `duplicates`."""

    def __init__(self, me: str = "n1") -> None:
        self.facts = Facts()
        self.duplicates: dict[str, str] = {}
        """Address -> MAC address of another host."""
        self.acts: list[Act] = []
        """All so far."""
        self.engine = Engine(self.facts, (*FEATURE.units, *POOL_MEMBERS.units))
        self.me = me
        self.claims = ClaimFeed(me)
        self.put(
            ThisNode(me, ("10.10.1.0/24",), ("192.0.2.1",), ("192.0.2.1",)),
            Transport("eth0", "eth0", "0a:00:00:00:00:01", 1500, ("192.0.2.1/24",)),
            PoolSelector("p", ()), Quorum(has=True, alive=3, of=3),
            *(AgentNode(name, ("192.0.2.9",), ("192.0.2.9",)) for name in NODES),
            *(GossipMember(name, alive=True) for name in NODES if name != me),
        )  # fmt: skip

    def put(self, *rows: Any) -> None:
        for row in rows:
            self.facts.put(row)

    def plan(self) -> None:
        """Until nothing more follows."""
        while True:
            acts = self.engine.plan().acts
            claims = self.facts.get(OwnClaims)
            self.claims.step(self.facts)
            if not acts and self.facts.get(OwnClaims) == claims:
                return
            self.acts += acts
            for act in acts:
                if isinstance(act, ProbeAddress):
                    self.facts.put(ProbedAddress(act.holder, act.ip, self.duplicates.get(act.ip, "")))
                elif isinstance(act, RecordAnswered):
                    row = self.answered(act)
                    others = tuple(dict.fromkeys((act.node, *row.others)))
                    self.facts.put(msgspec.structs.replace(row, others=others))
                elif isinstance(act, AnnounceExternalIP):
                    self.facts.put(self.answered(act, here=True))

    def answered(self, act: RecordAnswered | AnnounceExternalIP, **more: Any) -> AnsweredAddress:
        """As the part writes it."""
        row = self.facts.get(AnsweredAddress, act.holder)
        before = row if row and row.ip == act.ip else AnsweredAddress(act.holder, act.ip)
        return msgspec.structs.replace(before, **more)

    def owner(self, name: str = "web") -> str:
        self.plan()
        row = self.facts.get(ExternalIPOwner, f"shop/{name}")
        assert row is not None
        return row.node or row.why

    def answers(self) -> list[tuple[str, str]]:
        self.plan()
        found = self.engine.standing().values()
        return [(one.dev, one.ip) for one in found if isinstance(one, NeighbourResponse)]

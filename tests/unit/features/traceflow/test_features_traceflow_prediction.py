"""`antctl traceflow` compares what switches did with what policies should have done, where one packet is meant."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.explain.answer import Answer, AskedPacket, AtEndpoint, Through
from antrea.explain.verdict import Half, Verdict
from antrea.features.traceflow.antctl_part.prediction import _compared, _ends_of

POD = {"pod": "a", "namespace": "shop"}
TCP = {"transportHeader": {"tcp": {"dstPort": 80}}}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"source": POD, "destination": {"pod": "b"}, "packet": TCP}, ("shop/a", "default/b", "80/tcp")),
        ({"source": POD, "destination": {"service": "s"}, "packet": TCP}, ("shop/a", "default/s", "80/tcp")),
        ({"source": POD, "destination": {"ip": "192.0.2.1"}}, ("shop/a", "192.0.2.1", "icmp")),
        ({"source": POD, "destination": {"pod": "b"}, "packet": {"transportHeader": {"udp": {}}}}, None),
        ({"source": {"ip": "192.0.2.1"}, "destination": {"pod": "b"}}, None),
        ({"source": POD}, None),
    ],
)
def test_the_packet_that_is_explained_is_the_one_that_was_traced(spec: Any, wanted: Any) -> None:
    assert _ends_of(spec) == wanted


def half(direction: str, verdict: Verdict, sentence: str) -> Half:
    return Half(direction=direction, pod="shop/a", verdict=verdict, reason="rule", sentence=sentence)


def explained(verdict: Verdict) -> Answer:
    out, into = half("Egress", "Allow", "goes out"), half("Ingress", verdict, "comes in")
    asked = AskedPacket("shop/a", "10.0.0.1", "shop/b", "10.0.0.2", "80/tcp")
    return Answer(asked, verdict, "Ingress", into.sentence, out, into, ())


def policy(table: str, action: str) -> dict[str, str]:
    return {"component": "NetworkPolicy", "componentInfo": table, "action": action}


@pytest.mark.parametrize(
    ("verdict", "action", "agrees"),
    [
        ("Drop", "Dropped", True),
        ("Drop", "Rejected", False),
        ("Allow", "Dropped", False),
        ("Drop", "Forwarded", False),
        ("Allow", "Forwarded", True),
    ],
)
def test_a_switch_that_does_otherwise_is_said_to(verdict: Verdict, action: str, agrees: bool) -> None:
    seen = [{"component": "SpoofGuard", "action": "Forwarded"}]
    seen += [policy("EgressRule", "Forwarded"), policy("IngressMetric", action)]
    told = _compared(explained(verdict), seen)
    assert told == {"verdict": verdict, "because": "comes in", "agrees": agrees}
    assert [one.get("explain") for one in seen] == [None, "goes out", "comes in"]


def test_of_a_service_the_endpoint_that_was_chosen_counts() -> None:
    chosen: tuple[tuple[str, Verdict], ...] = (("10.0.0.2", "Drop"), ("10.0.0.3", "Allow"))
    ends = tuple(
        AtEndpoint(
            f"shop/{ip}", ip, 80, verdict, "Ingress", f"is {verdict}",
            half("Egress", "Allow", "goes out"), half("Ingress", verdict, f"is {verdict}"),
        )
        for ip, verdict in chosen
    )  # fmt: skip
    found = msgspec.structs.replace(
        explained("Drop"), verdict="Depends", through=Through("shop/s", "2 Endpoints", False, ends)
    )
    seen = [{"component": "LB", "action": "Forwarded", "translatedDstIP": "10.0.0.3"}]
    assert _compared(found, seen) == {"verdict": "Allow", "because": "is Allow", "agrees": True}
    assert seen[0]["explain"] == "AntreaProxy chooses one of the 2 Endpoints of Service shop/s"

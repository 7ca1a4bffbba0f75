"""What the controller says of captures that no Node makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis.crd.packet_capture import PacketCapture
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Engine, Facts
from antrea.facts.cluster import Pod
from antrea.facts.external_ip import FencedLeadership
from antrea.features.packet_capture.capture import CaptureRequest, capture_request, file_name
from antrea.features.packet_capture.controller import FEATURES

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

SOURCE = {"source": {"pod": {"namespace": "shop", "name": "web"}}}
STARTED = ({"type": "PacketCaptureStarted", "status": "True"},)


def capture(spec: dict[str, Any] = SOURCE, *conditions: dict[str, str]) -> CaptureRequest:
    found = {
        "metadata": {"name": "c", "uid": "u"},
        "spec": {"captureConfig": {"firstN": {"number": 1}}, **spec},
        "status": {"conditions": list(conditions)},
    }
    return capture_request(msgspec.convert(found, PacketCapture))


def pod(*, node: str = "n1", host: bool = False) -> Pod:
    return Pod("shop", "web", labels="shop/", node=node, host_network=host)


def messages(*rows: Fact) -> list[str]:
    facts = Facts()
    for row in rows:
        facts.put(row)
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    engine.plan()
    statuses = [entry for entry in engine.standing().values() if isinstance(entry, Status)]
    for one in statuses:
        assert one.path == "/apis/crd.antrea.io/v1alpha1/packetcaptures/c"
        message = one.conditions[0].message
        assert one.conditions == (
            Condition("PacketCaptureStarted", "False", reason="NoNode", message=message),
        )
    return [one.conditions[0].message for one in statuses]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((), ["Pod shop/web does not exist; the capture starts when it is created"]),
        ((pod(host=True),), ["Pod shop/web is in the network of its Node, where packets are not captured"]),
        ((pod(node=""),), ["Pod shop/web has no Node yet"]),
        ((pod(),), []),
    ],
)
def test_capture_of_which_no_node_makes_a_file_says_why(rows: tuple[Fact, ...], says: list[str]) -> None:
    assert messages(FencedLeadership(), capture(), *rows) == says
    assert messages(capture(), *rows) == []  # another replica leads


def test_capture_that_a_node_has_begun_is_left_to_its_agent() -> None:
    assert messages(FencedLeadership(), capture(SOURCE, *STARTED)) == []


def test_capture_without_a_pod_says_so() -> None:
    assert messages(FencedLeadership(), capture({"source": {"ip": "10.0.0.1"}})) == [
        "neither source nor destination is a Pod, where packets could be captured"
    ]


def test_capture_with_a_long_name_has_a_file_whose_name_is_possible() -> None:
    assert file_name("web") == "web.pcapng"
    names = [file_name("n" * 252 + end) for end in "ab"]
    assert [len(name) <= 255 for name in names] == [True, True]
    assert len(set(names)) == 2

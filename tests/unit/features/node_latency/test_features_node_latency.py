"""NodeLatencyMonitor: what is measured, how often, and what it may say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.crd.latency import NodeLatencyMonitor
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.node import PeerNode, ThisNode
from antrea.features.framework.admission import Review
from antrea.features.node_latency.admission import validate_latency_monitor
from antrea.features.node_latency.agent import FEATURE
from antrea.features.node_latency.monitor import LatencyMonitor, latency_monitor
from antrea.features.node_latency.target import LatencyTarget

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",))


def monitor(name: str = "default", seconds: int = 10, **annotations: str) -> NodeLatencyMonitor:
    said = {"antrea.io/latency-threshold": annotations["threshold"]} if annotations else {}
    found = {"metadata": {"name": name, "annotations": said}, "spec": {"pingIntervalSeconds": seconds}}
    return msgspec.convert(found, NodeLatencyMonitor)


def test_the_monitor_is_the_one_named_default() -> None:
    assert latency_monitor(monitor()) == LatencyMonitor(10.0)
    assert latency_monitor(monitor("other")) is None
    assert latency_monitor(monitor(threshold="5ms")) == LatencyMonitor(10.0, 0.005)
    assert latency_monitor(monitor(threshold="soon")) == LatencyMonitor(10.0)


@pytest.mark.parametrize("text", ["soon", "5", "0s", "-5ms"])
def test_a_threshold_that_is_no_duration_is_refused(text: str) -> None:
    steps: Any = validate_latency_monitor(Facts(), Review("CREATE", monitor(threshold=text)))
    with pytest.raises(
        Invalid,
        match=r"^metadata.annotations\[antrea.io/latency-threshold\]: .* is not a duration such as 5ms",
    ):
        list(steps)
    assert list(validate_latency_monitor(Facts(), Review("CREATE", monitor(threshold="1s")))) == []


def test_the_gateways_of_other_nodes_are_measured_while_there_is_a_monitor() -> None:
    facts = Facts()
    peers = [
        PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/64"), ("192.0.2.2",), ("192.0.2.2",)),
        PeerNode("n3", ("10.10.2.0/32",), ("192.0.2.3",), ("192.0.2.3",)),
        PeerNode("n4", ("10.10.3.0/24",), ("2001:db8::4",), ("2001:db8::4",)),
    ]
    for row in (NODE, *peers):
        facts.put(row)
    engine = Engine(facts, FEATURE.units)
    engine.plan()
    assert facts.all(LatencyTarget) == []
    facts.put(LatencyMonitor(60.0))
    engine.plan()
    assert facts.all(LatencyTarget) == [LatencyTarget("10.10.1.1", "n2"), LatencyTarget("fd00:10:1::1", "n2")]
    facts.drop(LatencyMonitor, "self")
    engine.plan()
    assert facts.all(LatencyTarget) == []
    assert not engine.errors.standing

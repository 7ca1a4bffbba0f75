"""Which records a stream has: those that every filter takes, and whose Namespaces its user may see.

parity: pkg/flowaggregator/flowstreamservice/service.go parseFlowFilter, matchFilter
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.errors import Invalid
from antrea.outside.apiserver.selector import label_terms

if TYPE_CHECKING:
    from collections.abc import Collection

    from antrea.apis.flow import FlowRecord

MAX_FILTERS: Final = 64
"""Filters of a stream, and values of each list of a filter."""
MAX_LENGTH: Final = 4096
"""Characters of a label selector."""
_ENDS: Final = {0: ("source", "destination"), 1: ("source",), 2: ("destination",)}
"""Ends by direction: both, from, to."""
_DECODER: Final = msgspec.json.Decoder(dict[str, str])


class FlowFilter:
    """One filter."""

    def __init__(self, message: Any) -> None:
        """Make the filter of a message FlowFilter. Raises Invalid."""
        for name in ("namespaces", "pod_names", "service_names", "flow_types", "ips"):
            if len(getattr(message, name)) > MAX_FILTERS:
                raise Invalid(name, f"has more than {MAX_FILTERS} values")
        if message.direction not in _ENDS:
            raise Invalid("direction", f"{message.direction} is none of {sorted(_ENDS)}")
        self._ends = _ENDS[message.direction]
        self.namespaces = frozenset(message.namespaces)
        self._pods, self._services = frozenset(message.pod_names), frozenset(message.service_names)
        self._types = frozenset(message.flow_types)
        if self._services and message.direction == 1:
            raise Invalid(
                "service_names", "cannot be together with direction FROM: a Service is where packets go to"
            )
        if len(message.pod_label_selector) > MAX_LENGTH:
            raise Invalid("pod_label_selector", f"is longer than {MAX_LENGTH} characters")
        self._networks = tuple(_network(text) for text in message.ips)
        try:
            self._labels = label_terms(message.pod_label_selector)
        except ValueError as error:
            raise Invalid("pod_label_selector", str(error)) from error

    def takes(self, record: FlowRecord) -> bool:
        """Whether the record is one of those that are asked for."""
        if self._types and record.flow_type not in self._types:
            return False
        if self._services and _service(record) not in self._services:
            return False
        return (
            self._has(record, "pod_namespace", self.namespaces)
            and self._has(record, "pod_name", self._pods)
            and (not self._labels or any(self._labelled(record, end) for end in self._ends))
            and (not self._networks or any(self._within(record, end) for end in self._ends))
        )

    def _has(self, record: FlowRecord, name: str, wanted: Collection[str]) -> bool:
        return not wanted or any(getattr(record, f"{end}_{name}") in wanted for end in self._ends)

    def _labelled(self, record: FlowRecord, end: str) -> bool:
        text = getattr(record, f"{end}_pod_labels")
        labels = _DECODER.decode(text) if text else {}
        return all(label.matches(labels) for label in self._labels)

    def _within(self, record: FlowRecord, end: str) -> bool:
        text = getattr(record, f"{end}_ip")
        return bool(text) and any(ip_address(text) in network for network in self._networks)


def is_visible(record: FlowRecord, namespaces: Collection[str] | None) -> bool:
    """Whether both ends are in these Namespaces or outside of the cluster, and one at least is in them; None: in any."""
    if namespaces is None:
        return True
    ends = [
        namespace
        for namespace in (record.source_pod_namespace, record.destination_pod_namespace)
        if namespace
    ]
    return bool(ends) and all(end in namespaces for end in ends)


def _service(record: FlowRecord) -> str:
    """The name of namespace/name:port."""
    return record.destination_service_port_name.partition("/")[2].partition(":")[0]


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise Invalid("ips", f"{text[:64]!r} is neither an address nor a CIDR") from error

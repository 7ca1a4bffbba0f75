"""Connections that the host may have translated before the switch got them: kube-proxy's NodePorts, ports of NodePortLocal.

Who sent the first packet, and to which address and port, the kernel's default zone alone has. It is asked once for each new
connection from the host that no Service of the switch has translated.
parity: pkg/agent/flowexporter/connections/from_external_correlator.go, which reads that zone at every poll
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.facts.node import LocalAddress
from antrea.features.flow_export.connection import ENDED
from antrea.features.flow_export.port_local import PROTOCOLS
from antrea.openflow.fields import CONN_SOURCE_CT_MARK, FROM_GATEWAY_CT_MARK, SERVICE
from antrea.openflow.tracked_connection import HostOriginal

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from antrea.engine import Facts
    from antrea.openflow.tracked_connection import Key, TrackedConnection

_MARKS: Final = CONN_SOURCE_CT_MARK.mask | SERVICE.mask


def is_from_host(found: TrackedConnection) -> bool:
    """Whether it came from the host, to the address of its destination: no Service of the switch has translated it."""
    return found.mark & _MARKS == FROM_GATEWAY_CT_MARK.value and found.key[0] in PROTOCOLS


class HostOriginals:
    """What the host was asked of connections that are tracked."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._found: dict[Hashable, HostOriginal | None] = {}
        self._ended: set[Hashable] = set()
        """Where nothing is counted the same ports that begin anew have the same identity, and may have another client."""

    def lacking(self, found: Iterable[TrackedConnection]) -> list[TrackedConnection]:
        """Those of which the host is to be asked."""
        return [one for one in found if is_from_host(one) and self._lacks(one)]

    def _lacks(self, found: TrackedConnection) -> bool:
        key = found.identity
        if key not in self._found:
            return True
        if found.state in ENDED:
            self._ended.add(key)
            return False
        return key in self._ended

    def take(self, found: Iterable[TrackedConnection], told: Iterable[HostOriginal | None]) -> None:
        """Take in the answers of the host on these."""
        for one, original in zip(found, told, strict=True):
            self._found[one.identity] = self._translated(one.key, original) if original else None
            if one.state in ENDED:
                self._ended.add(one.identity)
            else:
                self._ended.discard(one.identity)

    def _translated(self, key: Key, told: HostOriginal) -> HostOriginal | None:
        """None if nothing is; what begins at the Node itself keeps the source that the Pod sees."""
        own = self._facts.get(LocalAddress, told.source) or ip_address(told.source).is_loopback
        original = HostOriginal(key[1], key[2], told.ip, told.port) if own else told
        return original if original != key[1:5] else None

    def with_original(self, found: TrackedConnection) -> TrackedConnection:
        """The connection with its first packet as the host got it, if that was another one."""
        original = self._found.get(found.identity) if is_from_host(found) else None
        return found._replace(host=original) if original else found

    def forget(self, gone: Iterable[TrackedConnection]) -> None:
        """Those are tracked no more."""
        for one in gone:
            self._found.pop(one.identity, None)
            self._ended.discard(one.identity)

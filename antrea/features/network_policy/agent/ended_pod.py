"""Connections of ended Pods: none continues with the next Pod of the address, whose policies have not judged it.

Connection tracking accepts each packet with these addresses and ports as established, for as long as a client sends UDP.
Upstream leaves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.host.pod_tracking import TrackedPodAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface


def tracked_pod_addresses(_: Facts, pod: PodInterface) -> Iterator[TrackedPodAddress]:
    """Yield each address of a Pod."""
    for ip in pod.ips:
        yield TrackedPodAddress(ip, (f"{pod.name} {pod.ofport} {pod.mac}",))

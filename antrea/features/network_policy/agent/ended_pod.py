"""Connections of Pods that have ended: none goes on with a Pod that gets the address next, whose policies have not judged it.

Connection tracking takes each packet with these addresses and ports for one of what is established, which passes, for as long as a
client goes on over UDP. Upstream leaves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.host.pod_tracking import TrackedPodAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface


def tracked_pod_addresses(_: Facts, pod: PodInterface) -> Iterator[TrackedPodAddress]:
    """Each address of a Pod."""
    for ip in pod.ips:
        yield TrackedPodAddress(ip, (f"{pod.name} {pod.ofport} {pod.mac}",))

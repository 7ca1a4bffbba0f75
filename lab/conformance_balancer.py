"""Addresses for Services of type LoadBalancer, from a pool of antrea-controller, as a cloud's load balancer would give them."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.cluster import Lab

POOL, ANNOTATION = "conformance", "service.antrea.io/external-ip-pool"
RANGES = {
    "ipv4": ({"start": "172.30.0.100", "end": "172.30.0.150"},),
    "ipv6": ({"start": "fd00:172:30::100", "end": "fd00:172:30::150"},),
}
BETWEEN_SECONDS = 0.5


@contextlib.contextmanager
def balanced(lab: Lab) -> Iterator[None]:
    """Meanwhile each Service of type LoadBalancer is annotated with the pool, on the network of the Nodes."""
    lab.api.apply(json.dumps(pool(lab.settings.family)))
    over = threading.Event()
    annotating = threading.Thread(target=_annotate, args=(lab, over))
    annotating.start()
    try:
        yield
    finally:
        over.set()
        annotating.join()


def pool(family: str) -> dict[str, Any]:
    """The ExternalIPPool, with addresses of the families of the lab."""
    ranges = [
        address_range for name, some in RANGES.items() if family in (name, "dual") for address_range in some
    ]
    return {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "ExternalIPPool",
        "metadata": {"name": POOL},
        "spec": {"ipRanges": ranges, "nodeSelector": {}},
    }


def waits(service: Mapping[str, Any]) -> bool:
    """Whether this Service is of that type, of no class, and not annotated yet."""
    spec, annotations = service["spec"], service["metadata"].get("annotations", {})
    return (
        spec.get("type") == "LoadBalancer"
        and not spec.get("loadBalancerClass")
        and ANNOTATION not in annotations
    )


def _annotate(lab: Lab, over: threading.Event) -> None:
    while not over.wait(BETWEEN_SECONDS):
        for service in lab.api.items("/api/v1/services"):
            meta = service["metadata"]
            if waits(service):
                argv = ("annotate", "service", meta["name"], f"{ANNOTATION}={POOL}")
                # it may be gone by now
                with contextlib.suppress(Unavailable):
                    lab.api.kubectl("-n", meta["namespace"], *argv)

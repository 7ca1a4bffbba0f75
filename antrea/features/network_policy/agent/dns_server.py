"""Endpoints of the cluster's DNS Service: a client may get answers from their own addresses.

The host translates the answers to its own processes after they were read, and a Pod may query a server of the Service directly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

from antrea.apis.discovery import EndpointSlice
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched
from antrea.features.proxy.service import endpoint_rows

KUBE_DNS = "kube-system/kube-dns"
DNS_NAMESPACE = "kube-system"


class DnsEndpoint(Fact, frozen=True):
    """Address of one EndpointSlice of Service `kube-system/kube-dns`; the EndpointSlice feed writes it."""

    slice: str
    ip: str
    indexes: ClassVar[Mapping[str, Callable[[DnsEndpoint], Iterable[Hashable]]]] = {
        "ip": lambda row: (row.ip,)
    }

    @property
    def key(self) -> str:
        return f"{self.slice}:{self.ip}"


def dns_endpoints(endpoint_slice: EndpointSlice) -> tuple[DnsEndpoint, ...]:
    """Make a row for each address of the DNS Service; none for those of other Services."""
    rows = [row for row in endpoint_rows(endpoint_slice) if row.service == KUBE_DNS]
    return tuple(dict.fromkeys(DnsEndpoint(row.slice, row.ip) for row in rows if row.serving))


DNS_ENDPOINT_WATCH = Watched(
    f"/apis/discovery.k8s.io/v1/namespaces/{DNS_NAMESPACE}/endpointslices",
    EndpointSlice,
    DnsEndpoint,
    dns_endpoints,
)

"""Services of some Endpoints each, as kube-apiserver lists them, and as they are in etcd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINTS = 5
"""Of each Service."""


def address(number: int, network: int) -> str:
    return f"{network}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def lists(services: int, endpoints: int) -> tuple[bytes, bytes]:
    """Services and EndpointSlices, as kube-apiserver lists them."""
    found, slices = [], []
    for number in range(services):
        name = f"service-{number}"
        ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
        spec = {"type": "ClusterIP", "clusterIPs": [address(number, 100)], "ports": ports}
        found.append({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
        labels = {"kubernetes.io/service-name": name}
        rows = [
            {
                "addresses": [address(number * endpoints + one, 10)],
                "nodeName": "n2",
                "conditions": {"ready": True},
            }
            for one in range(endpoints)
        ]
        slices.append(
            {
                "metadata": {"name": f"{name}-x", "namespace": "shop", "labels": labels},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": rows,
            }
        )
    return msgspec.json.encode(found), msgspec.json.encode(slices)


def stored(services: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Services and EndpointSlices by their keys in etcd."""
    found, slices = (json.loads(one) for one in lists(services, ENDPOINTS))
    for number, one in enumerate([*found, *slices]):
        is_slice = "endpoints" in one
        group = "discovery.k8s.io/v1" if is_slice else "v1"
        one |= {"apiVersion": group, "kind": "EndpointSlice" if is_slice else "Service"}
        meta = one["metadata"]
        meta |= {"uid": f"00000000-0000-4000-8000-{number:012x}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if not is_slice:
            address = f"10.{96 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
            families = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
            one["spec"] |= {
                "clusterIP": address,
                "clusterIPs": [address],
                **families,
                "sessionAffinity": "None",
            }
        yield f"{'endpointslices' if is_slice else 'services/specs'}/shop/{meta['name']}", one

"""Bytes that answer a CNI call: '0' or '1' (the exit status of the plugin), JSON, a line feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.cni import Error, Interface, Ip, Result, Route

if TYPE_CHECKING:
    from antrea.agent.cni.request import Call

DEFAULT_ROUTE = {4: "0.0.0.0/0", 6: "::/0"}

_EMPTY = b"0\n"


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """Pod interface in place."""

    host_name: str
    mac: str
    """MAC address of the Pod's end."""
    addresses: tuple[str, ...]
    """Addresses with prefix length."""
    gateways: tuple[str, ...]
    """Gateways, one per address, in the same order."""


def result_of(call: Call, attached: Attached) -> Result:
    """Make the result in the shape of the requested version: before 1.0.0 an address names its IP version."""
    old = call.version.startswith("0.")
    families = [6 if ":" in address else 4 for address in attached.addresses]
    return Result(
        cni_version=call.version,
        interfaces=(
            Interface(attached.host_name),
            Interface(call.if_name, attached.mac, call.netns),
        ),
        ips=tuple(
            Ip(address, str(family) if old else "", gateway, 1)
            for address, gateway, family in zip(attached.addresses, attached.gateways, families, strict=True)
        ),
        routes=tuple(
            Route(DEFAULT_ROUTE[family], gateway)
            for gateway, family in zip(attached.gateways, families, strict=True)
        ),
        dns=call.dns,
    )


def success(result: Result | None) -> bytes:
    """Encode the answer that gives exit status 0; None prints nothing."""
    return _EMPTY if result is None else b"0" + msgspec.json.encode(result) + b"\n"


def failure(error: Error) -> bytes:
    """Encode the answer that gives exit status 1."""
    return b"1" + msgspec.json.encode(error) + b"\n"

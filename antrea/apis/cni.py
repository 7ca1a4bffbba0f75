"""Requests of the CNI plugin, network configurations, and results that container runtimes read.

Source: https://github.com/containernetworking/cni/blob/main/SPEC.md (0.3.0 to 1.1.0); codes 1 to 11 and 50, 51 are the
specification's, codes from 100 are upstream's (pkg/apis/cni/v1beta1/cni.proto, ErrorCode).
"""

from __future__ import annotations

import enum

import msgspec

API = 1
"""Version of the request below; the plugin installed on the Node may be of another release than the agent."""

VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""Supported versions of the specification, oldest first; cni/antrea.c lists the same."""


class Code(enum.IntEnum):
    """`code` of an error."""

    UNKNOWN = 0
    INCOMPATIBLE_CNI_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_NETWORK_CONFIG = 7
    TRY_AGAIN_LATER = 11
    NOT_AVAILABLE = 50
    LIMITED_CONNECTIVITY = 51
    IPAM_FAILURE = 101
    CONFIG_INTERFACE_FAILURE = 102
    CHECK_INTERFACE_FAILURE = 103
    INCOMPATIBLE_API_VERSION = 201


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """One line from the plugin: the environment variables of the same names (CNI_...) and its stdin."""

    api: int = 0
    command: str = ""
    container_id: str = ""
    netns: str = ""
    if_name: str = ""
    args: str = ""
    path: str = ""
    config: str = ""


class Dns(msgspec.Struct, frozen=True, omit_defaults=True):
    """DNS settings of a result."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class Interface(msgspec.Struct, frozen=True, omit_defaults=True):
    """An interface that a plugin created or that its Pod has."""

    name: str
    mac: str = ""
    sandbox: str = ""
    """Path of the network namespace; empty for an interface of the Node."""


class Ip(msgspec.Struct, frozen=True, omit_defaults=True):
    """An address of a result, and the index of its interface."""

    address: str
    """With prefix length."""
    version: str = ""
    """"4" or "6" before 1.0.0, absent since."""
    gateway: str = ""
    interface: int | None = None
    """Index into `interfaces`."""


class Route(msgspec.Struct, frozen=True, omit_defaults=True):
    """A route of a result."""

    dst: str
    gw: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ADD, and `prevResult` of CHECK."""

    cni_version: str = msgspec.field(default="", name="cniVersion")
    interfaces: tuple[Interface, ...] = ()
    ips: tuple[Ip, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Dns = Dns()


class Error(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a plugin, as the runtime reads it from its standard output."""

    cni_version: str = msgspec.field(name="cniVersion")
    code: Code
    msg: str
    details: str = ""


class Attachment(msgspec.Struct, frozen=True):
    """A member of `cni.dev/valid-attachments` (GC)."""

    container_id: str = msgspec.field(name="containerID")
    if_name: str = msgspec.field(name="ifname")


class IpamConfig(msgspec.Struct, frozen=True):
    """The section `ipam` of a network configuration."""

    type: str = ""


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fields read of a network configuration; a runtime and other plugins may have put more into it."""

    cni_version: str = msgspec.field(default="0.1.0", name="cniVersion")
    """Version of the specification; a configuration without it has 0.1.0."""
    name: str = ""
    type: str = ""
    mtu: int = 0
    """MTU of the Pod's interface in bytes; 0 is the Node's."""
    dns: Dns | None = None
    ipam: IpamConfig | None = None
    prev_result: Result | None = msgspec.field(default=None, name="prevResult")
    valid_attachments: tuple[Attachment, ...] | None = msgspec.field(
        default=None, name="cni.dev/valid-attachments"
    )

"""Answers of the programs' own APIs, which antctl reads.

/agentinfo answers an AntreaAgentInfo (antrea.apis.crd.info).
Source: upstream pkg/agent/apis/types.go, k8s.io/apimachinery/pkg/version.
"""

from __future__ import annotations

import msgspec


class Answer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Answer without its empty fields, as upstream's."""


class VersionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """/version: gitVersion is ours, such as v0.1.0; the rest is empty, as in upstream's releases."""

    major: str
    minor: str
    git_version: str
    git_commit: str = ""
    git_tree_state: str = ""
    build_date: str = ""
    go_version: str = ""
    compiler: str = ""
    platform: str = ""


class PodInterfaceAnswer(Answer, frozen=True):
    """One element of /podinterfaces."""

    name: str
    pod_namespace: str
    interface_name: str
    ips: tuple[str, ...]
    mac: str
    port_uuid: str = msgspec.field(name="portUUID")
    of_port: int
    container_id: str = msgspec.field(name="containerID")


class FlowAnswer(Answer, frozen=True):
    """One element of /ovsflows: a flow, a group or the name of a table."""

    flow: str


class FqdnAnswer(Answer, frozen=True):
    """One element of /fqdncache; `expiration_time` is RFC 3339 in UTC."""

    fqdn_name: str
    ip_address: str
    expiration_time: str
    server: str = ""
    """Where it is not trusted: the address counts for rules that drop or reject alone."""


class TraceAnswer(Answer, frozen=True):
    """/ovstracing: the text that ofproto/trace printed."""

    result: str


def version_info(version: str) -> VersionInfo:
    """Return the answer of /version for a release such as 0.1.0."""
    major, minor, *_ = [*version.split("."), "0"]
    return VersionInfo(major, minor, f"v{version}")

"""What the programs' own APIs answer, and antctl reads.

Source: upstream pkg/agent/apis/types.go, pkg/apis/crd/v1beta1/types.go AntreaAgentInfo, k8s.io/apimachinery/pkg/version.
"""

from __future__ import annotations

import msgspec

from antrea.apis.core import ObjectReference


class Answer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """As upstream, what is empty is left out."""


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


class OvsInfo(Answer, frozen=True):
    """The bridge, and how many flows each table has."""

    bridge_name: str = ""
    flow_table: dict[str, int] = {}


class AgentCondition(Answer, frozen=True):
    """One line of health; `status` is True or False, `reason` says why it is False."""

    type: str
    status: str
    reason: str = ""


class AgentInfoAnswer(Answer, frozen=True):
    """/agentinfo"""

    version: str
    pod_ref: ObjectReference
    node_ref: ObjectReference
    node_subnets: tuple[str, ...]
    ovs_info: OvsInfo
    local_pod_num: int = 0
    agent_conditions: tuple[AgentCondition, ...] = ()
    api_port: int = 0


def version_info(version: str) -> VersionInfo:
    """What /version answers for a release such as 0.1.0."""
    major, minor, *_ = [*version.split("."), "0"]
    return VersionInfo(major, minor, f"v{version}")

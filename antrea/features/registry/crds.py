"""How kube-apiserver serves each kind that features declare: names, scope, versions, columns, feature gates.

A feature declares its kinds in module `crd` of its folder.

Source: upstream build/charts/antrea/crds/*.yaml; v1alpha2 of Egress and ExternalIPPool as in v1.15.1;
sigs.k8s.io/network-policy-api config/crd/experimental of v0.2.0, and of v0.1.7 for what v0.2.0 has no more.
"""

from __future__ import annotations

from itertools import chain

from antrea.apis.crd import info
from antrea.apis.crd.definition import ANTREA, GROUP, Column, Crd, Version
from antrea.features import FEATURES
from antrea.features.framework.plug import declared


def _health(program: str) -> tuple[Column, ...]:
    path = f".{program.lower()}Conditions[?(@.type=='{program}Healthy')]"
    return (
        Column("Healthy", "string", f"{path}.status", "Whether it is well."),
        Column("Last Heartbeat", "date", f"{path}.lastHeartbeatTime", "When that was judged."),
        Column("Version", "string", ".version", "Version of the program.", 1),
    )


AGENT_COLUMNS = (
    *_health("Agent"),
    Column("Node", "string", ".nodeRef.name", "Node of the agent.", 1),
    Column("Num Pods", "integer", ".localPodNum", "Pods of the Node.", 2),
    Column("Subnets", "string", ".nodeSubnets", "Where its Pods' addresses come from.", 2),
)
CONTROLLER_COLUMNS = (
    *_health("Controller"),
    Column("Connected Agents", "integer", ".connectedAgentNum", "Agents that watch.", 1),
    Column("Node", "string", ".nodeRef.name", "Node of the controller.", 1),
    Column(
        "Num Network Policies",
        "integer",
        ".networkPolicyControllerInfo.networkPolicyNum",
        "Policies that it computes.",
        2,
    ),
)
OTHER_CRDS: tuple[Crd, ...] = (
    Crd(
        "antreaagentinfos",
        ("aai",),
        "Cluster",
        (Version("v1beta1", info.AntreaAgentInfo, AGENT_COLUMNS),),
        labels=ANTREA,
    ),
    Crd(
        "antreacontrollerinfos",
        ("aci",),
        "Cluster",
        (Version("v1beta1", info.AntreaControllerInfo, CONTROLLER_COLUMNS),),
        labels=ANTREA,
    ),
)
"""Kinds that no folder of a feature has: those of the programs themselves."""
ALL_CRDS: tuple[Crd, ...] = tuple(
    sorted(
        (*OTHER_CRDS, *chain.from_iterable(declared(FEATURES, "crd", Crd, "CRDS").values())),
        key=lambda crd: (crd.group, crd.plural),
    )
)
"""Kinds of all features, by group and name."""
if len({crd.name for crd in ALL_CRDS}) < len(ALL_CRDS):
    raise ValueError("a CustomResourceDefinition is declared twice")
CRDS = tuple(crd for crd in ALL_CRDS if crd.group == GROUP)
ADMIN_CRDS = tuple(crd for crd in ALL_CRDS if crd.group != GROUP)
"""Kinds of the network-policy-api project."""

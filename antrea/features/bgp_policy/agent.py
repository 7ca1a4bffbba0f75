"""BGPPolicy in the agent: which sessions this Node has with routers, and what it advertises to them.

The path of an address: `policy` chooses the BGPPolicy, `advertisement` the networks, `session` the routers (`password`,
`router_id`); the part writes the entries to FRR, and its state back into facts (`state`).
"""

from __future__ import annotations

from antrea.engine import Unit
from antrea.facts.egress import Egress
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.router import RouterSession
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.bgp_policy import network, policy, router_id
from antrea.features.bgp_policy.advertisement import (
    AdvertisedPrefix,
    egress_prefix,
    pod_prefixes,
    prefix_entry,
    service_prefixes,
)
from antrea.features.bgp_policy.gate import GATE
from antrea.features.bgp_policy.imported import ImportedRoute, RefusedRoute, imported_route
from antrea.features.bgp_policy.network import PoolNetworks
from antrea.features.bgp_policy.password import PeerPassword
from antrea.features.bgp_policy.policy import BgpPolicyRow, EffectivePolicy, effective_policy
from antrea.features.bgp_policy.relay import passed_on, relayed_service
from antrea.features.bgp_policy.router_id import NodeRouterId, router_id_annotation
from antrea.features.bgp_policy.session import IgnoredSetting, UnusablePeer, ignored_settings, sessions
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.proxy.service import ENDPOINT_SLICE_WATCH, SERVICE_WATCH
from antrea.openflow.cookie import Category

FEATURE = AgentFeature(
    name=GATE,
    gate=GATE,
    units=(
        Unit(ThisNode, effective_policy, yields=(EffectivePolicy,)),
        Unit(EffectivePolicy, sessions, yields=(RouterSession, UnusablePeer)),
        Unit(EffectivePolicy, ignored_settings, yields=(IgnoredSetting,)),
        Unit(ThisNode, router_id_annotation),
        Unit(ThisNode, pod_prefixes, yields=(AdvertisedPrefix,)),
        Unit(Service, service_prefixes, yields=(AdvertisedPrefix,)),
        Unit(AdvertisedPrefix, prefix_entry, by="prefix"),
        Unit(Service, relayed_service),
        Unit(EffectivePolicy, passed_on),
    ),
    watched=(policy.WATCHED, router_id.WATCHED, network.WATCHED, SERVICE_WATCH, ENDPOINT_SLICE_WATCH),
    category=Category.ROUTES,
    sweep_after=(
        BgpPolicyRow,
        PoolNetworks,
        NodeRouterId,
        PeerPassword,
        AgentNode,
        Service,
        ServiceEndpoint,
        LocalAddress,
    ),
)
EGRESS = AgentFeature(
    name="BGPPolicy of Egresses",
    gate=GATE,
    within="Egress",
    units=(Unit(Egress, egress_prefix, yields=(AdvertisedPrefix,)),),
    category=Category.ROUTES,
    sweep_after=(Egress,),
)
IMPORTS = AgentFeature(
    name="BGPPolicy of imported routes",
    gate=GATE,
    units=(Unit(ImportedRoute, imported_route, yields=(RefusedRoute,)),),
    category=Category.IMPORTED_ROUTES,
    sweep_after=(ImportedRoute,),
)
SHOWN = AgentFeature(name="BGPPolicyView")
"""Feature that is always on: while the gate is off it stops FRR, and requests to the agent's API fail with that reason."""
FEATURES = (FEATURE, EGRESS, IMPORTS, SHOWN)

"""Role of the agent: on a Node of the cluster, or on a machine outside of it (`nodeType`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from antrea.agent.node.bootstrap import prepare
from antrea.agent.node.cluster_feed import CLUSTER_NODES
from antrea.agent.node.feeds import LOCAL_PODS, ThisNodeFeed, own_node
from antrea.agent.node.machine_bootstrap import prepare_machine
from antrea.config.agent import MACHINE_TYPE
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.pod import LocalPod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.node.bootstrap import Prepared
    from antrea.agent.node.feeds import NodeListener
    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts, Feed
    from antrea.facts.fact import Fact
    from antrea.features.framework.admission import Watched
    from antrea.outside.kube.client import Kube
    from antrea.outside.ovsdb.client import Ovsdb

LOOPBACK = "127.0.0.1"


class Role(Protocol):
    """Differences between the two roles."""

    name: str
    """Name of the Node, or Namespace and name of the ExternalNode, which antrea-controller gets with each request."""
    has_pods: bool
    api_address: str
    """Address where the agent's API listens; empty for all."""
    watched: tuple[Watched, ...]
    """Watches of kube-apiserver that every agent of this role has."""

    async def prepare(self, db: Ovsdb) -> Prepared:
        """Create or correct the bridge. Raises Invalid, Refused, Unavailable."""

    def feeds(self, prepared: Prepared, news: NodeListener) -> Mapping[str, Feed]:
        """Feeds of other kinds of facts that every agent of this role has."""


class KubernetesNode:
    """Role on a Node, which has Pods, a gateway and tunnels."""

    has_pods, api_address = True, ""
    watched: tuple[Watched, ...] = (CLUSTER_NODES, LOCAL_PODS)

    def __init__(self, config: AgentConfig, kube: Kube, name: str) -> None:
        self._config, self._kube, self.name = config, kube, name

    async def prepare(self, db: Ovsdb) -> Prepared:
        """See `Role.prepare`."""
        return await prepare(self._config, await own_node(self._kube, self.name), db)

    def feeds(self, prepared: Prepared, news: NodeListener) -> Mapping[str, Feed]:
        """See `Role.feeds`."""
        return {"node": ThisNodeFeed(self._kube, prepared.node, news)}


class ExternalMachine:
    """Role on a machine outside the cluster, whose bridge has nothing but its own interfaces."""

    has_pods, api_address = False, LOOPBACK
    watched: tuple[Watched, ...] = ()

    def __init__(self, config: AgentConfig, name: str) -> None:
        self._config, self.name = config, full_name(config, name)

    async def prepare(self, db: Ovsdb) -> Prepared:
        """See `Role.prepare`."""
        return await prepare_machine(self._config, self.name, db)

    def feeds(self, _prepared: Prepared, _news: NodeListener) -> Mapping[str, Feed]:
        """See `Role.feeds`."""
        return {"Node facts": NothingFeed((AgentNode, ThisNode, LocalPod))}


class NothingFeed:
    """Feed of kinds that have no rows here."""

    def __init__(self, kinds: tuple[type[Fact], ...]) -> None:
        self._kinds = kinds

    async def run(self, facts: Facts) -> None:
        """Report all kinds as synced."""
        for kind in self._kinds:
            facts.synced(kind)


def full_name(config: AgentConfig, name: str) -> str:
    """Return the name of the Node, or Namespace and name of the ExternalNode, for the name that the process was given."""
    if config.node_type == MACHINE_TYPE:
        return f"{config.external_node.external_node_namespace}/{name}"
    return name


def role_of(config: AgentConfig, kube: Kube, name: str) -> Role:
    """Choose the role by `nodeType`; `name` is that of the Node or of the ExternalNode."""
    if config.node_type == MACHINE_TYPE:
        return ExternalMachine(config, name)
    return KubernetesNode(config, kube, name)

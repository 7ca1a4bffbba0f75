"""networking.k8s.io/v1: NetworkPolicy, as far as it is computed."""

from __future__ import annotations

import msgspec

from antrea.apis.core import CoreStruct
from antrea.apis.crd.part import LabelSelector, Metadata


class IPBlock(CoreStruct, frozen=True):
    """A CIDR with holes."""

    cidr: str = ""
    except_: tuple[str, ...] = msgspec.field(default=(), name="except")


class NetworkPolicyPeer(CoreStruct, frozen=True):
    """Either a block, or Pods of selected Namespaces."""

    ip_block: IPBlock | None = None
    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None

    @property
    def is_known(self) -> bool:
        """Whether it has one of these fields: a peer with others alone, of a later API, matches nothing here."""
        return not (self.ip_block is None and self.pod_selector is None and self.namespace_selector is None)


class NetworkPolicyPort(CoreStruct, frozen=True):
    """A port or a range of ports."""

    protocol: str = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class NetworkPolicyIngressRule(CoreStruct, frozen=True):
    """Peers that may reach the Pods."""

    ports: tuple[NetworkPolicyPort, ...] = ()
    from_: tuple[NetworkPolicyPeer, ...] = msgspec.field(default=(), name="from")


class NetworkPolicyEgressRule(CoreStruct, frozen=True):
    """Whom the Pods may reach."""

    ports: tuple[NetworkPolicyPort, ...] = ()
    to: tuple[NetworkPolicyPeer, ...] = ()


class NetworkPolicySpec(CoreStruct, frozen=True):
    """Pods and what is allowed to them."""

    pod_selector: LabelSelector = LabelSelector()
    policy_types: tuple[str, ...] = ()
    ingress: tuple[NetworkPolicyIngressRule, ...] = ()
    egress: tuple[NetworkPolicyEgressRule, ...] = ()


class NetworkPolicy(CoreStruct, frozen=True):
    """Fields read of a NetworkPolicy."""

    metadata: Metadata = Metadata()
    spec: NetworkPolicySpec = NetworkPolicySpec()

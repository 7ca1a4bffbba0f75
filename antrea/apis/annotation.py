"""Annotations of ours, and those that this agent keeps on its own Node and its Pods."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank

TRANSPORT_ADDRESSES = "node.antrea.io/transport-addresses"
"""Where tunnels to this Node end, when that is not its InternalIP: "10.1.0.4,fd00::4"."""

LINK = "node.antrea.io/link"
"""On a Node, by its agent: MAC and networks of the card by which other Nodes, without tunnels, pass packets on to it as they came:
"02:00:00:00:00:01 192.0.2.1/24 2001:db8::1/64"."""

KEEP_SSH = "node.antrea.io/keep-ssh"
"""On a Node: ports that no policy on Nodes closes: "true" is 22, else "22,2222"."""

PREFERRED_NODES = "egress.antrea.io/preferred-nodes"
"""On an Egress: which Nodes are to hold its address, the first one that can: "n1,n2"."""
FAILBACK = "egress.antrea.io/failback"
"""On an Egress: when its address leaves a Node that lives for a better one: "immediate", "when-idle" or "never"."""
LOST_CONNECTIONS = "egress.antrea.io/lost-connections"
"""On an Egress: what the next gateway does with connections through a lost one: "continue" or "reset"."""
SURVIVE = "egress.antrea.io/survive"
"""On an Egress: by what connections continue at the next gateway when theirs is lost: "ports" or "none"."""

EXTERNAL_IP_POOL = "service.antrea.io/external-ip-pool"
"""On a Service of type LoadBalancer: the ExternalIPPool that gives it an address."""
ALLOW_SHARED_IP = "service.antrea.io/allow-shared-load-balancer-ip"
"""On such a Service: "true" if it may have the address of its loadBalancerIP together with others that may, too."""

PREFERRED_FOR_SERVICE = "service.antrea.io/preferred-nodes"
"""On such a Service: which Nodes are to answer for its address, the first one that can: "n1,n2"."""
FAILBACK_FOR_SERVICE = "service.antrea.io/failback"
"""On such a Service: when its address leaves a Node that lives for a better one: "immediate", "when-idle" or "never"."""
KEPT_EXTERNAL_IPS = "service.antrea.io/kept-external-ips"
"""On a Node, by its agent: addresses of such Services that it keeps from better Nodes: "192.0.2.40=1,192.0.2.41=3:idle"."""

SILENT_SUBNETS = "node.antrea.io/silent-subnets"
"""On a Node, by its agent: networks of external IPs in which neighbours do not answer it: "172.18.181.1/24@181,172.30.0.0/24"."""

ACCEPT_ANY_HOST_KEY = "antrea.io/accept-any-host-key"
"""On a PacketCapture or SupportBundleCollection: "true" if an SFTP server may have any key where hostPublicKey is empty."""

CONSISTENT_CHOICE = "service.antrea.io/consistent-endpoint-choice"
"""On a Service: "true" if Endpoints that come and go are to leave the choice of the others for each connection as it is."""

ON_DENY = "antrea.io/on-deny"
"""On a network policy, of Kubernetes or of Antrea: whether established connections that it forbids are cut."""
FLUSH = "flush"
"""Its one value: they are cut."""

ENFORCEMENT = "antrea.io/enforcement"
"""On a network policy, of Kubernetes or of Antrea, or on a Namespace for all policies in it: whether it is enforced."""
AUDIT, ENFORCE = "audit", "enforce"
"""Its values: what the policy would drop passes, and is counted and logged; or it is enforced, also in a Namespace that is audited."""
AUDITED_RULES = "antrea.io/audited-rules"
"""On a policy of Antrea's: names of the rules that alone are audited: "no-telnet,no-ftp"."""

CONFIRM_WITHIN = "antrea.io/confirm-within"
"""On a policy of Antrea's: it is taken back after this time ("60s") unless its generation is confirmed."""
CONFIRMED = "antrea.io/confirmed"
"""On such a policy: the generation that stays, as a number."""

GATES_IN_EFFECT = "antrea.io/feature-gates-in-effect"
"""On an AntreaAgentInfo while its agent refuses a configuration: the gates that are on, by name: "Egress,Traceflow"."""

STATS_EPOCH = "stats.antrea.io/epoch"
"""On a NodeStatsSummary: the controller's count of what the Node has reported before, and in its answer its own."""
STATS_ACCOUNT, STATS_SERIAL = "stats.antrea.io/account", "stats.antrea.io/serial"
"""On a NodeStatsSummary: whose number it has, and the number, which grows."""


LATENCY_THRESHOLD = "antrea.io/latency-threshold"
"""On the NodeLatencyMonitor: round trips that take longer are recorded in an Event, such as "5ms"."""

LOAD_BALANCER_MODE = "service.antrea.io/load-balancer-mode"
"""On a Service: how connections to its external addresses get to Endpoints of other Nodes, and back: "nat" or "dsr"."""

BGP_ROUTER_ID = "node.antrea.io/bgp-router-id"
"""On a Node: identifier of its BGP speaker, an IPv4 address; the agent writes the one that it uses."""

MAX_EGRESS_IPS = "node.antrea.io/max-egress-ips"
"""On a Node: how many Egress IPs it holds at most, "0" to "255"."""

ENABLE_LOGGING = "networkpolicy.antrea.io/enable-logging"
"""On a Namespace: "true" if what the NetworkPolicies in it decide is logged."""

IP_POOLS, POD_IPS = "ipam.antrea.io/ippools", "ipam.antrea.io/pod-ips"
"""On a Pod, the first on a Namespace, too: from where addresses of Pods come."""

PORT_LOCAL_ENABLED = "nodeportlocal.antrea.io/enabled"
"""On a Service: "true" gives its Pods ports of their Nodes."""
PORT_LOCAL = "nodeportlocal.antrea.io"
"""On a Pod: its ports of its Node, as JSON; the agent writes it."""

L7_EXPORT = "visibility.antrea.io/l7-export"
"""On a Pod or a Namespace: whose requests (HTTP, TLS, DNS) are exported: connections to the Pod, from it, or both: "ingress", "egress", "both"."""


class NodeAnnotation(msgspec.Struct, frozen=True):
    """`name: value` on Node `node`; an empty value means that the annotation is absent."""

    node: str
    name: str
    value: str

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.node, self.name)


class PodAnnotation(msgspec.Struct, frozen=True):
    """`name: value` on a Pod that does not have it so yet; an empty value takes the annotation away.

    It is wanted until the Pod has it; withdrawing it removes nothing.
    """

    namespace: str
    pod: str
    uid: str
    """A Pod made anew under the name is another one."""
    name: str
    value: str

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.namespace, self.pod, self.name)

"""Keys that nothing acts on yet: one with another value than its default is named to the user, once.

A feature that is built loses its rows here; tests/unit/config/test_config_idle.py finds rows that are out of date and keys
that no code reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.effect import InEffect, differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MULTICAST = "multicast is not built yet"
_REQUESTS = "requests go out as they come"
_JSON = "JSON is asked for, or what is quickest to read"
_GOSSIP = "gossip is always authenticated, in both directions"
_ACCELERATION = "the flowtable is not built yet, packets go through the host's network as they do without it"
_NFTABLES = "rules in the host's network are always those of nftables"
_IPSEC = "IPsec is not built yet"


class IdleKey(NamedTuple):
    """`path` of a key, and why it has no effect."""

    path: str
    why: str
    node_type: str = ""
    """With this `nodeType` it has one."""


def _below(section: str, why: str, keys: Iterable[str]) -> Iterator[IdleKey]:
    return (IdleKey(f"{section}.{key}", why) for key in keys)


_MULTICLUSTER = IdleKey("multicluster.namespace", "multi-cluster traffic is not built yet")
_CONNECTIONS = tuple(
    IdleKey(f"{connection}.{key}", why)
    for connection in ("clientConnection", "antreaClientConnection")
    for key, why in (("acceptContentTypes", _JSON), ("qps", _REQUESTS))
)
IDLE: dict[type, tuple[IdleKey, ...]] = {
    AgentConfig: (
        *_CONNECTIONS,
        _MULTICLUSTER,
        IdleKey("hostNetworkAcceleration.enable", _ACCELERATION),
        IdleKey("hostNetworkMode", _NFTABLES),
        IdleKey("wireGuard.port", "encryption between Nodes is not built yet"),
        IdleKey("multicluster.wireGuard.port", "multi-cluster traffic is not built yet"),
        *_below("memberlist", _GOSSIP, ("gossipVerifyIncoming", "gossipVerifyOutgoing")),
        *_below("multicast", _MULTICAST, ("multicastInterfaces", "igmpQueryVersions", "igmpQueryInterval")),
        *(
            IdleKey(f"externalNode.{key}", "nodeType is not externalNode", "externalNode")
            for key in ("externalNodeNamespace", "policyBypassRules")
        ),
    ),
    ControllerConfig: (
        *(row for row in _CONNECTIONS if row.path.startswith("clientConnection.")),
        _MULTICLUSTER,
        *_below("ipsecCSRSigner", _IPSEC, ("autoApprove", "selfSignedCA")),
    ),
}
"""Keys without effect by the type of the file."""


def idle(config: Any) -> tuple[str, ...]:
    """A sentence for each key of `config` that asks for something and has no effect."""
    kind = type(config)
    node_type = getattr(config, "node_type", "")
    rows = {
        row.path: row.why for row in IDLE.get(kind, ()) if not row.node_type or row.node_type != node_type
    }
    return tuple(
        f"{path}: has no effect: {rows[path]}" for path in differences(kind(), config) if path in rows
    )


def without_effect(now: InEffect[Any, Any]) -> tuple[str, ...]:
    """Return keys without effect as `idle` does, and a sentence for each feature gate without effect."""
    return (*idle(now.config), *getattr(now.gates, "notes", ()))

"""Root causes: the order in which findings are shown, and the findings that follow from others and are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.antctl.doctor.state import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.antctl.doctor.state import Finding

API_SERVER: Final = "kube-apiserver"
AGENT: Final = "agent"
REPORTS: Final = ("heartbeats", "ovsdb", "switch", "controller-connection", "agent-health")
ON_NODE: Final = (
    *(
        "agent",
        "config",
        "cni-configs",
        "kube-proxy",
        "ovs-ports",
        "mtu",
        "gossip-port",
        "transport",
        "tunnels",
        "services",
    ),
    *("kernel-modules", "foreign-drops", "parts", "node-latency", "agent-gates"),
)
"""Checks that the agent of a Node makes, or that are about packets to the Node."""
PATHS: Final = (
    "ovs-ports",
    "gossip-port",
    "transport",
    "tunnels",
    "services",
    "node-latency",
    "agent",
    "agent-health",
)
"""Checks of what a switch forwards."""
REGISTRATIONS: Final = ("api-services", "webhooks")
OF_CONTROLLER: Final = (
    *("controller-connection", "controller-heartbeat", "controller-health", "agent-health"),
    *("node-latency", "policies", "traceflows", "support-bundles", "egresses", "service-external-ips"),
)
"""Checks of what only a running controller keeps right."""


class Cause(NamedTuple):
    """A check whose errors explain findings of other checks."""

    check: str
    on_node: tuple[str, ...] = ()
    """Consequences on the Node of the finding, and elsewhere about that Node."""
    in_cluster: tuple[str, ...] = ()
    """Consequences everywhere."""


TOKENS: Final = (
    *("rights", "agent", "heartbeats", "controller-connection", "agent-health", "parts"),
    *("transport", "tunnels", "gossip-port", "node-latency"),
)
"""Checks of an agent whose requests kube-apiserver refuses."""
ORDER: Final = (
    Cause(API_SERVER),
    Cause(
        "node-addresses",
        (
            *("nodes", "node-network", "agents", "heartbeats", "controller-connection", "agent-health"),
            *("agent", "transport", "tunnels", "gossip-port", "node-latency"),
        ),
    ),
    Cause("nodes", ("agents", "controller", "node-network", *REPORTS, *ON_NODE)),
    Cause(
        "definitions", in_cluster=("agents", "controller", *REPORTS, *REGISTRATIONS, *OF_CONTROLLER, *ON_NODE)
    ),
    Cause(
        "config-map", in_cluster=("agents", "controller", "config", *REPORTS, *REGISTRATIONS, *OF_CONTROLLER)
    ),
    Cause(
        "missing-rights",
        in_cluster=(
            *("rights", "controller", "api-services", *OF_CONTROLLER),
            *("heartbeats", "transport", "tunnels", "gossip-port", "services"),
        ),
    ),
    Cause("agent-account", TOKENS),
    Cause("controller-account", in_cluster=("controller", *REGISTRATIONS, *OF_CONTROLLER)),
    Cause("node-pressure", ("agents", "controller", "agent-health")),
    Cause("time-skew", ("certificates", "controller-connection", "agent-health")),
    Cause("agents", ("node-network", *REPORTS, *ON_NODE)),
    Cause("certificates", in_cluster=(*REGISTRATIONS, *OF_CONTROLLER)),
    Cause("controller", in_cluster=(*REGISTRATIONS, *OF_CONTROLLER)),
    Cause("controller-port", in_cluster=(*REGISTRATIONS, *OF_CONTROLLER)),
    Cause("ovsdb", ("switch", *PATHS)),
    Cause("switch", PATHS),
    Cause(
        "rights",
        ("heartbeats", "controller-connection", "agent-health", "transport", "tunnels", "gossip-port"),
    ),
    Cause(
        "configuration",
        (
            *("node-network", "heartbeats", "controller-connection", "agent-health"),
            *("transport", "tunnels", "gossip-port", "services"),
        ),
    ),
    Cause("heartbeats", ("controller-connection", "agent-health")),
    Cause(AGENT, tuple(check for check in ON_NODE if check != "agent")),
    Cause("cni-configs", ("node-network",)),
    Cause("transport", ("tunnels", "gossip-port")),
    Cause("gossip-port", ("tunnels",)),
    Cause("mtu", ("path-mtu",)),
    Cause("foreign-drops", ()),
    Cause("kube-proxy", ("services",)),
    Cause("controller-connection", ("agent-health",)),
    Cause("controller-health", ()),
    Cause("api-services", in_cluster=("node-latency",)),
    Cause("flow-aggregator-rights", in_cluster=("flow-aggregator", "flow-collector")),
)
"""Root causes first. A check may only explain checks that are listed below it, or not at all."""
RANKS: Final = {cause.check: rank for rank, cause in enumerate(ORDER)}


def split(rows: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Return findings to show, root causes and errors first, and those that follow from the ones shown."""
    ordered = sorted(dict.fromkeys(rows), key=_place)
    shown: list[Finding] = []
    consequences: list[Finding] = []
    everywhere: set[str] = set()
    at: set[tuple[str, ...]] = set()
    by_check = {cause.check: cause for cause in ORDER}
    is_slow = any(row.check == API_SERVER and row.severity == "error" for row in ordered)
    silent = {row.node for row in ordered if row.check == AGENT and not _is_unanswered(row)}
    for row in ordered:
        places = {(row.node, row.check), (row.peer, row.check), (row.node, row.peer, row.check)}
        unasked = _is_unanswered(row) and (row.node in silent or (is_slow and _is_late(row)))
        if row.check in everywhere or places & at or unasked:
            consequences.append(row)
        else:
            shown.append(row)
            if row.check in REPORTS and row.node:
                at.add((row.node, row.check))  # the agent says it, and its report
        # what follows from a consequence follows from its cause, too
        if row.severity == "error" and not _is_unanswered(row) and (cause := by_check.get(row.check)):
            everywhere |= set(cause.in_cluster)
            if row.node:
                place = (row.node, row.peer) if row.peer else (row.node,)
                at |= {(*place, check) for check in cause.on_node}
            else:
                everywhere |= set(cause.on_node)
    return shown, consequences


def _is_unanswered(row: Finding) -> bool:
    """Return whether a check has got no answer, and therefore no verdict."""
    return row.finding.startswith(UNANSWERED)


def _is_late(row: Finding) -> bool:
    """Return whether an unanswered check has got no answer of kube-apiserver in time."""
    return not row.node or "timed out" in row.finding


def _place(row: Finding) -> tuple[bool, bool, int, str, str]:
    """Return where a finding is shown: errors first, then root causes, and last what could not be checked."""
    rank = RANKS.get(row.check, len(RANKS))
    return row.severity != "error", _is_unanswered(row), rank, row.node, row.check

"""All checks of the control plane, with the fields of ClusterState that each of them needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.antctl.doctor.control_plane import certificates, nodes, registration, release, report, rollout
from antrea.antctl.doctor.state import UNANSWERED, Finding, edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

    Check = Callable[[ClusterState], Iterator[Finding]]

CHECKS: Final[Mapping[str, tuple[Check, tuple[str, ...]]]] = {
    report.API_SERVER: (report.api_server, ("latency",)),
    nodes.ADDRESSES: (nodes.addresses, ("nodes",)),
    nodes.NODES: (nodes.nodes, ("nodes",)),
    nodes.PRESSURE: (nodes.pressure, ("nodes",)),
    rollout.ACCOUNTS: (rollout.accounts, ("service_accounts", "pods")),
    rollout.AGENTS: (rollout.agents, ("daemon_sets", "pods", "nodes", "events")),
    rollout.CONTROLLERS: (rollout.controllers, ("deployments", "pods", "events")),
    registration.DEFINITIONS: (registration.definitions, ("resources",)),
    registration.POLICY_DEFINITIONS: (registration.policy_definitions, ("policy_resources", "config")),
    registration.CONFIG_MAP: (registration.configuration, ("config",)),
    certificates.CERTIFICATES: (
        certificates.certificates,
        ("certificate", "authority", "agent_infos", "config", "now"),
    ),
    registration.API_SERVICES: (registration.api_services, ("api_services", "authority")),
    registration.WEBHOOKS: (registration.webhooks, ("webhooks", "authority")),
    report.CONTROLLER_HEARTBEAT: (report.controller_heartbeat, ("controller_info", "pods", "now")),
    report.HEARTBEATS: (report.heartbeats, ("agent_infos", "pods", "now")),
    "connections": (report.connections, ("agent_infos", "pods", "now")),
    report.VERSIONS: (report.versions, ("agent_infos", "controller_info", "pods")),
    rollout.DNS: (rollout.cluster_dns, ("dns",)),
    release.RELEASE: (release.release, ("releases", "config")),
}
"""`nodes` also yields findings of the check `node-network`, `service-accounts` those of `agent-account` and `controller-account`,
`controller-heartbeat` those of `controller-health`, and `connections` those of a check for each condition."""


def findings(state: ClusterState) -> list[Finding]:
    """Return the findings of all checks. A check that lacks a field is an error with the cause."""
    rows: list[Finding] = []
    for name, (check, fields) in CHECKS.items():
        if causes := sorted(
            {state.unseen.get(field, "") for field in fields if getattr(state, field) is None}
        ):
            rows.append(Finding("", "error", name, f"{UNANSWERED}{'; '.join(causes)}", ""))
        else:
            rows += check(state)
    return [at_owner(state, row) for row in rows]


def at_owner(state: ClusterState, row: Finding) -> Finding:
    """Return the finding with a repair where the configuration is written: a tool that applies the ConfigMap undoes edits of it."""
    command = edit(state.namespace)
    if not state.config_owner or not row.repair.startswith(command):
        return row
    change = state.config_owner.change(state.namespace, "VALUES")
    return row._replace(repair=f"{change}{row.repair.removeprefix(command)}")

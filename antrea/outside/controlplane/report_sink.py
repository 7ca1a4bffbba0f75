"""Posts to antrea-controller which policies this Node has realized; it counts the Nodes, and shows them to users.

parity: pkg/agent/controller/networkpolicy/status_controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from antrea.apis.controlplane import GROUP, VERSION
from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.policy_report import PolicyReport
    from antrea.outside.kube.client import Kube


class ReportClient(Protocol):
    """Part of Controlplane that reports need."""

    @property
    def controller(self) -> Kube | None:
        """The controller, while it is connected."""


class PolicyReportSink:
    """Sink of PolicyReport. The controller forgets when it starts: replay it then."""

    def __init__(self, connection: ReportClient) -> None:
        self._connection = connection

    async def apply(self, put: Sequence[PolicyReport], _drop: Sequence[PolicyReport]) -> None:
        """Raises Refused with the controller's words, Unavailable."""
        for entry in put:
            controller = self._connection.controller
            if controller is None:
                raise Unavailable("no connection to antrea-controller")
            path = f"/apis/{GROUP}/{VERSION}/networkpolicies/{entry.policy}/status"
            node = {
                "nodeName": entry.node,
                "generation": entry.generation,
                "realizationFailure": bool(entry.failure),
                "message": entry.message,
            }
            body = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "NetworkPolicyStatus",
                "metadata": {"name": entry.policy},
                "nodes": [node],
            }
            try:
                await controller.create(path, body)
            except Refused as error:
                raise Refused([entry], error.why) from error

    async def resync(self, entries: Sequence[PolicyReport]) -> None:
        """Send everything again; without a connection this does nothing, since the next connection replays."""
        if self._connection.controller is not None:
            await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: the controller forgets the Nodes that a policy has left."""

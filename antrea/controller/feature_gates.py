"""/featuregates of the controller: its own gates, and the agents' as their configuration in the ConfigMap asks for them.

Where that is one that agents refuse, nobody but they know what goes on there, and their gates are left out.
parity: pkg/apiserver/handlers/featuregates
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.gate import resolve, statuses
from antrea.outside import klog
from antrea.outside.config_map import ConfigMap
from antrea.outside.environment import own_config_map
from antrea.outside.serving import json_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from antrea.features.gate import GateStatus
    from antrea.outside.kube import Kube
    from antrea.outside.serving import Handler

log = klog.logger(__name__)


def feature_gates(own: Sequence[GateStatus], kube: Kube | None, namespace: str) -> Handler:
    """A handler that reads the ConfigMap each time it is asked; without an API server it answers `own`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{own_config_map()}"

    async def handler(_: web.Request) -> web.StreamResponse:
        agents: list[GateStatus] = []
        try:
            found = await kube.get(path, ConfigMap) if kube else None
            if found is not None:
                agents = agent_gates(found.data.get(AgentConfig.file, ""))
        except (Invalid, Refused, Unavailable) as why:
            log.warning("The gates of the agents are not known", err=str(why))
        return json_answer([*agents, *own])

    return handler


def agent_gates(text: str) -> list[GateStatus]:
    """The gates of agents whose configuration is `text`. Raises Invalid for one that they refuse."""
    return statuses(resolve("agent", parse(AgentConfig, text).config.feature_gates))

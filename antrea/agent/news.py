"""What happens to the configuration while the agent runs, and where its user reads of it: log and Events on the Node."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from antrea.agent.node_events import warn
from antrea.config.agent import AgentConfig
from antrea.outside import klog
from antrea.outside.configuration import Configuration, texts

if TYPE_CHECKING:
    from antrea.config.effect import InEffect
    from antrea.features.gate import EnabledGates
    from antrea.outside.kube import Kube

    AgentConfiguration = Configuration[AgentConfig, EnabledGates]

log = klog.logger(__name__)
CONFIG_MAP = "antrea-config"


class Node(NamedTuple):
    """This Node in the API."""

    kube: Kube
    name: str

    async def warn(self, reason: str, message: str) -> None:
        """A Warning on the Node."""
        await warn(self.kube, self.name, reason, message)


async def listen(node: Node, configuration: AgentConfiguration) -> None:
    """Until the agent has to be rebuilt for a new configuration; outside of a Pod there is no ConfigMap."""
    await _tell(node, None, configuration.now)
    namespace = os.environ.get("POD_NAMESPACE", "")
    name = os.environ.get("ANTREA_CONFIG_MAP_NAME", CONFIG_MAP)
    if not namespace:
        await asyncio.Event().wait()
    async for text in texts(node.kube, namespace, name, AgentConfig.file):
        before = configuration.now
        changed = configuration.offer(text)
        await _tell(node, before, configuration.now)
        if changed:
            log.info("The configuration has changed")
            return


async def _tell(
    node: Node, before: InEffect[AgentConfig, EnabledGates] | None, now: InEffect[AgentConfig, EnabledGates]
) -> None:
    """What is new in `now`, once."""
    file = AgentConfig.file
    for key in now.unknown:
        if before is None or key not in before.unknown:
            log.warning("The configuration has a key that is not read", file=file, problem=key.sentence)
            await node.warn("UnknownConfigKey", f"{file}: {key.sentence}")
    if now.rejected and (before is None or now.rejected != before.rejected):
        log.error("The configuration is refused, the last good one goes on", why=now.rejected)
        await node.warn("ConfigRejected", f"{now.rejected}; the last good configuration goes on")
    if now.pending and (before is None or now.pending != before.pending):
        keys = ", ".join(now.pending)
        log.warning("Keys of the configuration wait for a restart of this Pod", file=file, keys=keys)
        await node.warn(
            "ConfigNeedsRestart", f"{file}: {keys}: takes effect when the antrea-agent Pod restarts"
        )

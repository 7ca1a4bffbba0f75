"""All that goes on with packets between switch and agent: whose they are, where lines on them go, and what was lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from antrea.agent.policy_packets import PolicyPackets
from antrea.openflow.fields import PacketIn
from antrea.outside.audit_log import AuditLog
from antrea.outside.ovs_control import counter
from antrea.outside.packets import OVERFLOW_COUNTER, Packets

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts

AUDIT_LOG = Path("/var/log/antrea/networkpolicy/np.log")


class SwitchPackets:
    """Those of the bridge with management socket `switch`; the audit log is `log`."""

    def __init__(self, switch: Path, config: AgentConfig, facts: Facts, log: Path = AUDIT_LOG) -> None:
        self._control = switch.parent
        self._packets = Packets(switch, config.packet_in_rate)
        self.connected = self._packets.connected
        """The switch knows what we want."""
        self._audit = AuditLog(log, config.audit_logging)
        policies = PolicyPackets(facts, self._packets.send, self._audit)
        self._packets.deliver(PacketIn.NETWORK_POLICY, policies.handle)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._packets.run(), name="packets")
            tasks.create_task(self._audit.run(), name="audit log")

    def text(self) -> str:
        """What was lost, in Prometheus' format."""
        return self._packets.text() + self._audit.text()

    async def overflow(self) -> int:
        """Packets that the switch dropped, since they waited for us in vain. Raises Unavailable."""
        return await counter(self._control, OVERFLOW_COUNTER)

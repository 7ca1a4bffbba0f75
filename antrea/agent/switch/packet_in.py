"""Packets between switch and agent: whose they are, and what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.outside.vswitch.appctl import counter
from antrea.outside.vswitch.packet_channel import OVERFLOW_COUNTER, Packets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from antrea.config.agent import AgentConfig
    from antrea.openflow.fields import PacketIn as Category
    from antrea.openflow.packet_in import PacketIn


class SwitchPackets:
    """Those of the bridge with management socket `switch`."""

    def __init__(self, switch: Path, config: AgentConfig) -> None:
        self._control = switch.parent
        self._packets = Packets(switch, config.packet_in_rate)
        self.connected = self._packets.connected
        """The switch has been asked for packet-ins."""
        self.send = self._packets.send
        """Have the switch send a packet."""
        self.resume = self._packets.resume
        """Have the switch go on with a packet that it holds."""
        self.text = self._packets.text
        """What was lost, in Prometheus' format."""

    def deliver(self, handlers: Mapping[Category, Callable[[PacketIn], None]]) -> None:
        """Who takes packet-ins of which category; to be called before `run`."""
        for category, handle in handlers.items():
            self._packets.deliver(category, handle)

    async def run(self) -> None:
        """Until cancelled."""
        await self._packets.run()

    async def overflow(self) -> int:
        """Packets that the switch dropped, since they waited for us in vain. Raises Unavailable."""
        return await counter(self._control, OVERFLOW_COUNTER)

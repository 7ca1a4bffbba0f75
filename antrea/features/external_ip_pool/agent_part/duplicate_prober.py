"""Prober of addresses of Egresses and Services that this Node is to hold, repeated for as long as another host has one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.facts.egress import ProbedAddress
from antrea.features.external_ip_pool.duplicate import READS, is_to_be_probed
from antrea.outside.log import klog
from antrea.outside.neighbour.probe import answers_for_all, who_has
from antrea.outside.neighbour.probe_failure import is_link_down, note_failed_probe

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.external_ip_pool.duplicate import ProbeAddress

log = klog.logger(__name__)

LATER_SECONDS: Final = 3.0
"""Seconds after an address was taken from another Node, which has released it by then
(antrea.features.egress.agent_part.graceful_handover.LINGER_SECONDS).
"""
SURE_SECONDS: Final = 1.0
"""Seconds after a first answer: a Node that had the address for a just deleted Egress releases it."""
AGAIN_SECONDS: Final = 5.0
"""Seconds between probes while another host has it for sure."""
TRIES, TRY_SECONDS = 40, 0.05
"""Tries, and seconds between them: a device that was just made may not be up."""
LOOK_SECONDS: Final = 1.0


class DuplicateProber:
    """Handler of ProbeAddress, and feed of ProbedAddress, in the network namespace of the thread that runs it."""

    def __init__(self, node: str) -> None:
        """`node` is the name of this one."""
        self._node = node
        self._probes: dict[str, asyncio.Task[None]] = {}
        """Probes by Egress or Service."""

    async def run(self, facts: Facts) -> None:
        """Drop answers together with their address, until cancelled."""
        try:
            with facts.watch(*READS) as news:
                while True:
                    news.clear()
                    for row in facts.all(ProbedAddress):
                        if not is_to_be_probed(facts, row.holder, row.ip, self._node):
                            facts.drop(ProbedAddress, row.holder)
                    self._probes = {name: task for name, task in self._probes.items() if not task.done()}
                    await news.wait()
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in self._probes.values():
                task.cancel()
            await asyncio.gather(*self._probes.values(), return_exceptions=True)

    async def probe(self, facts: Facts, act: ProbeAddress) -> None:
        """Handle the act without waiting: many addresses may come together."""
        if before := self._probes.get(act.holder):
            before.cancel()
        self._probes[act.holder] = asyncio.create_task(self._ask(facts, act), name=f"probe {act.ip}")

    async def _ask(self, facts: Facts, act: ProbeAddress) -> None:
        if not act.before:
            await asyncio.sleep(LATER_SECONDS)
        mac = ""
        while is_to_be_probed(facts, act.holder, act.ip, self._node):
            if answer := await _conflicting_mac(act, mac):
                await asyncio.sleep(SURE_SECONDS)
                answer = await _conflicting_mac(act, answer)
            mac = answer
            facts.put(ProbedAddress(act.holder, act.ip, mac), urgent=True)
            if not mac:
                return
            log.warning(
                "Another host uses an address of ours", holder=act.holder, ip=act.ip, mac=mac, dev=act.dev
            )
            await asyncio.sleep(AGAIN_SECONDS)


async def _conflicting_mac(act: ProbeAddress, before: str) -> str:
    """The MAC address of the host with the address.

    If this Node fails to ask, that is the host found `before`; empty if there is none, since Pods do not wait for that.
    """
    otherwise = ""
    for left in reversed(range(TRIES)):
        try:
            mac = await who_has(act.dev, act.ip)
            if mac and await answers_for_all(act.dev, mac, act.strangers):
                log.info(
                    "A router answers for addresses that it does not hold",
                    ip=act.ip,
                    mac=mac,
                    dev=act.dev,
                )
                return ""
            return mac
        except OSError as error:
            otherwise = "" if is_link_down(error) else before
            if not is_link_down(error):
                note_failed_probe(error)
            if not left:
                log.warning("Failed to probe an address", ip=act.ip, dev=act.dev, err=str(error))
        await asyncio.sleep(TRY_SECONDS)
    return otherwise

"""Prober of neighbors in the Node's own networks, where it has external IPs of Services or may get them.

The rounds of probes so far decide whether neighbors in a network answer this Node. Other Nodes wait for a shorter time than the Node that answers for the addresses there, and come back later: if the gateway is down,
all of them count as silent before that one does, and still do when it no longer does, so that no address moves.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import TYPE_CHECKING, Final

from antrea.facts.external_ip import AnsweringNetwork, ExternalIPOwner
from antrea.features.service_external_ip.network import READS, AskedNetwork, asked_networks
from antrea.outside.log import klog
from antrea.outside.neighbour.probe import answers_as, who_has
from antrea.outside.neighbour.probe_failure import is_link_down, note_failed_probe
from antrea.outside.netlink.transport_interface import cards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from antrea.engine import Facts
    from antrea.outside.netlink.transport_interface import Card

log = klog.logger(__name__)

LOOK_SECONDS: Final = 3.0
"""Seconds between two rounds."""
ROUTES_SECONDS: Final = 30.0
"""Seconds between two reads of the routes."""
MAX_GATEWAYS: Final = 2
MAX_IPS: Final = 16
"""Maximum number of external IPs of one network in one round: the others have their turn after."""
MISSED, MISSED_AS_OWNER = 2, 4
"""Rounds in which no neighbour may answer before the Node counts as silent."""
BACK, BACK_AS_OWNER = 3, 1
"""Rounds in which any neighbour must answer before it no longer does."""
UNHEARD: Final = 3
"""Rounds in which no neighbour may answer an external IP that was answered before."""
MAX_KNOWN: Final = 4096
"""Answers as external IPs that are kept also of addresses that are elsewhere."""
HOLD_SECONDS, MAX_HOLD_SECONDS = 600.0, 3600.0
"""Seconds for which a Node leaves the addresses to others: while it has none of them it cannot find out. Twice as long each
time.
"""


class NetworkVerdict:
    """Verdict on one network."""

    def __init__(self, *, silent: bool) -> None:
        """`silent`: as reported before, perhaps by an earlier agent."""
        self.answers: bool | None = False if silent else None
        """None if no neighbor has answered so far, or the result is open."""
        self.unheard = ""
        """The external IP as which neighbours no longer answer."""
        self.met: set[str] = set()
        """Neighbours that have answered so far."""
        self._missed = self._good = 0
        self._known: set[tuple[str, str]] = set()
        """External IPs, and neighbours that answered the Node as these."""
        self._missed_as: dict[str, int] = {}
        self._hold = HOLD_SECONDS
        self._until = 0.0

    def update(self, probed: Iterable[str], answered: Collection[str], *, as_owner: bool) -> None:
        """Record a round: which neighbors were probed, and which answered."""
        if not answered and self.met.isdisjoint(probed):
            return
        self.met.update(answered)
        self._missed = 0 if answered else self._missed + 1
        self._good = self._good + 1 if answered else 0
        if self._missed >= (MISSED_AS_OWNER if as_owner else MISSED):
            self.answers = False
        elif self._good and (
            self.answers is not False or self._good >= (BACK_AS_OWNER if as_owner else BACK)
        ):
            self.answers = True

    def update_as_owner(self, ip: str, probed: Iterable[str], answered: Collection[str], now: float) -> None:
        """Record a probe as an external IP: which neighbors, of those that answer the Node, were probed, and which answered."""
        if answered:
            self._known |= {(ip, neighbour) for neighbour in answered}
            self._missed_as.pop(ip, None)
            if self.unheard in ("", ip) and now >= self._until:
                self.unheard, self._hold = "", HOLD_SECONDS
            return
        if not any((ip, neighbour) in self._known for neighbour in probed):
            return
        missed = self._missed_as[ip] = self._missed_as.get(ip, 0) + 1
        if missed >= UNHEARD and not self.unheard:
            self.unheard, self._until = ip, now + self._hold
            self._hold = min(2 * self._hold, MAX_HOLD_SECONDS)
            self._missed_as.clear()

    def keep_only(self, ips: tuple[str, ...], now: float) -> None:
        """Drop misses of external IPs that this Node no longer answers for; the hold ends by itself."""
        self._missed_as = {ip: missed for ip, missed in self._missed_as.items() if ip in ips}
        if len(self._known) > MAX_KNOWN:
            self._known = {known for known in self._known if known[0] in ips}
        if self.unheard and now >= self._until:
            self.unheard = ""


class NetworkFeed:
    """Feed of AnsweringNetwork, in the network namespace of the thread that runs it."""

    def __init__(self, node: str) -> None:
        """`node` is the name of this one."""
        self._node = node
        self._verdicts: dict[tuple[str, str], NetworkVerdict] = {}
        """Verdicts by device and network."""
        self._cards: tuple[Card, ...] = ()
        self._cards_until = 0.0
        self._turn = 0

    async def run(self, facts: Facts) -> None:
        """Run until cancelled."""
        with facts.watch(*READS) as news:
            while True:
                news.clear()
                wanted = asked_networks(facts, self._answered)
                await self.round(facts, wanted)
                if not wanted:
                    await news.wait()
                await asyncio.sleep(LOOK_SECONDS)

    async def round(self, facts: Facts, wanted: Sequence[AskedNetwork]) -> None:
        """Probe in all networks at once."""
        now = asyncio.get_running_loop().time()
        if wanted and now >= self._cards_until:
            try:
                self._cards, self._cards_until = await cards(), now + ROUTES_SECONDS
            except OSError as error:
                # the routes of the last time are as good
                note_failed_probe(error)
        self._turn += MAX_IPS
        rows = await asyncio.gather(*(self._probe(facts, network) for network in wanted))
        keys = {network.key for network in wanted}
        self._verdicts = {key: verdict for key, verdict in self._verdicts.items() if key in keys}
        facts.replace(AnsweringNetwork, [row for row in rows if row])

    async def _probe(self, facts: Facts, network: AskedNetwork) -> AnsweringNetwork | None:
        """Probe one network; None while the result is open."""
        verdict = self._verdicts.setdefault(network.key, NetworkVerdict(silent=network.silent))
        if network.lost:
            return self._lost(network, verdict)
        targets = (*gateways(self._cards, network.dev, network.network), *network.nodes)
        if not targets:
            return None
        answers = await asyncio.gather(*(_mac(network.dev, ip) for ip in targets))
        there = [(ip, mac) for ip, mac in zip(targets, answers, strict=True) if mac]
        before = verdict.answers
        if there or None not in answers:
            verdict.update(targets, [ip for ip, _ in there], as_owner=bool(network.ips))
        if verdict.answers is False and before is not False:
            log.warning(
                "No neighbour answers", dev=network.dev, network=network.network, targets=",".join(targets)
            )
        verdict.keep_only(network.ips, asyncio.get_running_loop().time())
        if there:
            await self._ask_as(facts, network, verdict, there)
        if verdict.answers is None:
            return None
        return AnsweringNetwork(network.dev, network.network, verdict.answers, targets, verdict.unheard)

    @property
    def _answered(self) -> list[tuple[str, str]]:
        """Keys of networks in which neighbours have answered."""
        return [key for key, verdict in self._verdicts.items() if verdict.met]

    def _lost(self, network: AskedNetwork, verdict: NetworkVerdict) -> AnsweringNetwork | None:
        verdict.update(verdict.met, (), as_owner=bool(network.ips))
        if verdict.answers is None:
            return None
        return AnsweringNetwork(network.dev, network.network, verdict.answers)

    async def _ask_as(
        self, facts: Facts, network: AskedNetwork, verdict: NetworkVerdict, there: Sequence[tuple[str, str]]
    ) -> None:
        """Probe, as the external IPs of this Node, the neighbors that have just answered it."""
        first = self._turn % len(network.ips) if network.ips else 0
        ips = islice((*network.ips[first:], *network.ips[:first]), MAX_IPS)

        async def ask(ip: str) -> None:
            if not self._is_ours(facts, ip):  # it may have moved since the round began
                return
            answers = await asyncio.gather(*(_answers_as(network.dev, *target, ip) for target in there))
            if self._is_ours(facts, ip) and (any(answers) or None not in answers):
                names = [name for name, _ in there]
                answered = [name for name, is_one in zip(names, answers, strict=True) if is_one]
                verdict.update_as_owner(ip, names, answered, asyncio.get_running_loop().time())

        await asyncio.gather(*(ask(ip) for ip in ips))

    def _is_ours(self, facts: Facts, ip: str) -> bool:
        return any(row.node == self._node for row in facts.by(ExternalIPOwner, "ip", ip))


def gateways(cards: Iterable[Card], dev: str, network: str) -> tuple[str, ...]:
    """Next hops of the Node's routes that are neighbours in the network, those of default routes first."""
    there = ip_network(network)
    hops = sorted({(bool(dst), via) for card in cards if card.name == dev for dst, via in card.routes})
    near = (
        via
        for _, via in hops
        if (address := ip_address(via)) in there
        or (address.version == there.version and address.is_link_local)
    )
    return tuple(islice(dict.fromkeys(near), MAX_GATEWAYS))


async def _mac(dev: str, ip: str) -> str | None:
    """Return the MAC address of a neighbour, empty if it does not answer, or None if this Node failed to ask."""
    try:
        return await who_has(dev, ip)
    except OSError as error:
        if is_link_down(error):
            return ""
        note_failed_probe(error)
        return None


async def _answers_as(dev: str, ip: str, mac: str, sender: str) -> bool | None:
    """Return whether a neighbour answers the Node as `sender`, or None if this Node failed to ask."""
    try:
        return await answers_as(dev, ip, mac, sender)
    except OSError as error:
        if is_link_down(error):
            return False
        note_failed_probe(error)
        return None

"""Rules on domain names: DNS responses are held until their addresses are enforced, and names are kept up to date.

Policies on Pods and those on the Node have a `FqdnController` each. Answers of trusted servers count for all of them; those of
others open nothing, and close addresses only to the Pod that got them.
parity: pkg/agent/controller/networkpolicy/fqdn.go
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from antrea.apis.agent_api import FqdnAnswer
from antrea.decoding import decode_msgpack
from antrea.errors import AntreaError, Invalid, Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.dns_answer import DnsAnswer, dns_answer
from antrea.features.network_policy.agent.dns_stream import DnsStreams
from antrea.features.network_policy.agent.fqdn_cache import NEARLY_FULL, FqdnCache
from antrea.features.network_policy.agent.own_answer import OwnAnswers
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent_part.name_scope import families
from antrea.openflow.fields import TARGET_OF_PORT
from antrea.openflow.packet import TCP, UDP, packet
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.kube.clock import stamp_in
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.fqdn import FqdnAddress
    from antrea.features.network_policy.agent.fqdn_cache import Fill
    from antrea.features.network_policy.agent_part.name_scope import NameScope
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn
    from antrea.outside.vswitch.revalidation import Revalidation

    Settled = Callable[[FqdnAddress], Awaitable[None]]
    Verdict = Callable[[bool], None]

log = klog.logger(__name__)

HELD_SECONDS = 2.0
"""Seconds that an answer waits for its addresses to be enforced; then it is dropped, and the client retries."""
MAX_HELD = 1000
"""Maximum number of answers that wait at the same time; more are dropped."""
MAX_HELD_OF_POD = 250
"""Maximum number of waiting answers to one Pod."""
ROWS_IN_TURN = 4
"""Number of addresses of a held answer that are processed before other tasks may run."""
REPORT_SECONDS = 60.0
"""Seconds between two log lines on answers of one kind: a Pod decides how many answers come."""
MAX_QUERIES = 16
"""Maximum number of the agent's own queries in progress."""
RETRY_SECONDS = 5.0
"""Seconds until a name that no server answered is queried again."""
MAX_NAMED = 3
"""Maximum number of Pods that a message names."""
EVERY_SECONDS, SHARE = 0.2, 20
"""Minimum seconds between two writes of the file, and the multiple of the last one's duration."""
FORMAT = b"antrea fqdn cache 1\n"
_UDP_HEADER = 8


class Kept(msgspec.Struct, array_like=True):
    """Content of the file."""

    patterns: tuple[str, ...]
    names: dict[str, tuple[str, ...]]
    users: dict[str, tuple[str, ...]] = {}
    """Pods that have resolved each name."""


class FqdnController:
    """Cache of DNS answers, with the packets that are held for it, its queries and its file.

    `settled` waits until what follows from a row is enforced. The file of an earlier agent is loaded into `facts` immediately.
    """

    def __init__(
        self,
        facts: Facts,
        scope: NameScope,
        settled: Settled,
        *,
        min_ttl: float = 0,
        retry: float = RETRY_SECONDS,
        revalidation: Revalidation | None = None,
    ) -> None:
        """`revalidation` is that of a datapath whose cache may still have earlier decisions; None if there is no cache."""
        self._facts, self._scope, self._settled, self._keep = facts, scope, settled, scope.keep
        self._retry, self._revalidation = retry, revalidation
        self._met: set[str] = set()
        """Keys of rows that all packets meet."""
        self.cache = FqdnCache(min_ttl=min_ttl, row=scope.addresses)
        self.own = OwnAnswers(scope.untrusted_row)
        """Answers of untrusted servers."""
        self._streams = DnsStreams()
        self._tasks: asyncio.TaskGroup | None = None
        self._held: Counter[str] = Counter()
        """Number of waiting answers by Pod."""
        self._asking: set[str] = set()
        self._questions = asyncio.Semaphore(MAX_QUERIES)
        self._unanswered: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._written = b""
        self.dropped: Counter[str] = Counter()
        """Number of dropped answers by reason."""
        self.ignored = 0
        """Number of answers on names in rules from untrusted servers."""
        self._reported_at: dict[str, float] = {}
        """Time of the last log line of each warning on answers."""
        self._reported: frozenset[str] = frozenset()
        """Limits that are nearly reached and have been logged."""
        self._read()

    def handle(self, frame: bytes, verdict: Verdict, pod: str = "") -> None:
        """Handle one DNS answer to a Pod; `verdict` is called once, with whether the client may have it."""
        is_full = self._held.total() >= MAX_HELD or self._held[pod] >= MAX_HELD_OF_POD
        if self._tasks is None or is_full:
            self._drop("too many held", verdict)
            return
        try:
            rows = self._read_frame(frame, pod)
        except Invalid as error:
            log.v(2).info("A DNS answer cannot be read", err=str(error))
            self._drop("unreadable", verdict)
            return
        if rows:
            self._held[pod] += 1
            self._tasks.create_task(self._hold(rows, verdict, pod), name="DNS answer")
        else:
            verdict(True)

    def note(self, frame: bytes, pod: str = "") -> None:
        """Note one DNS answer that its client has already, or will have in any case."""
        try:
            self._read_frame(frame, pod)
        except Invalid as error:
            log.v(2).info("A DNS answer cannot be read", err=str(error))

    def pod_of(self, packet_in: PacketIn) -> str:
        """Return the Pod that is the destination of a packet."""
        pods = self._facts.by(PodInterface, "ofport", packet_in.value(TARGET_OF_PORT))
        return pods[0].pod if pods else ""

    def _read_frame(self, frame: bytes, pod: str) -> list[FqdnAddress]:
        """Process the answers of a frame. Return the rows that follow. Raises Invalid."""
        read = packet(frame)
        learn = self._learned if self._scope.trusts(read.source) else partial(self._ignored, read.source)
        return [row for answer in self._answers(read) for row in learn(answer, pod)]

    def _drop(self, why: str, verdict: Verdict) -> None:
        self.dropped[why] += 1
        verdict(False)

    async def _hold(self, rows: list[FqdnAddress], verdict: Verdict, pod: str) -> None:
        try:
            async with asyncio.timeout(HELD_SECONDS):
                await self._enforced(rows)
        except (TimeoutError, AntreaError) as error:
            self._drop("not realized", verdict)
            self._report(
                "A DNS answer was dropped: its addresses are not enforced", row=rows[0].key, err=str(error)
            )
        else:
            verdict(True)
        finally:
            self._held[pod] -= 1
            if not self._held[pod]:
                del self._held[pod]

    async def _enforced(self, rows: list[FqdnAddress]) -> None:
        """Return once packets meet the rows. Raises as `settled`."""
        new = {row.key for row in rows} - self._met
        cached = self._revalidation if new else None
        with cached.watched() if cached else contextlib.nullcontext():
            for number, row in enumerate(rows):
                if number % ROWS_IN_TURN == ROWS_IN_TURN - 1:
                    await asyncio.sleep(0)  # all answers that wait go on at the same moment
                await self._settled(row)
            if cached:
                await self._revalidated(cached, new)

    async def _revalidated(self, cached: Revalidation, keys: set[str]) -> None:
        """Revalidate after the flows are in place: if this fails the answer is passed, since a dropped one costs its client
        seconds.
        """
        try:
            await cached.completed()
        except Unavailable as error:
            self._report(
                "A DNS answer is passed although the switch may have cached an earlier decision",
                err=str(error),
            )
        else:
            self._met |= {key for key in keys if self._facts.get(self._scope.addresses, key)}

    def _report(self, sentence: str, **fields: str) -> None:
        """Log a warning, unless the same sentence was logged a moment ago."""
        now = time.monotonic()
        if now - self._reported_at.get(sentence, -REPORT_SECONDS) >= REPORT_SECONDS:
            self._reported_at[sentence] = now
            log.warning(sentence, **fields)

    def _answers(self, read: Packet) -> list[DnsAnswer]:
        """Parse the answers of a packet. Raises Invalid."""
        if read.protocol == UDP:
            messages = [read.payload[_UDP_HEADER:]] if read.first else []
        elif read.protocol == TCP:
            messages = self._streams.messages(read)
        else:
            raise Invalid("DNS answer", f"protocol {read.protocol} does not carry it")
        return [answer for message in messages if (answer := dns_answer(message)) is not None]

    def _learned(self, answer: DnsAnswer, pod: str) -> list[FqdnAddress]:
        self.cache.learn(answer.name, answer.addresses, time.monotonic(), pod)
        rows = self.cache.wanted(answer)
        self._write_rows()
        return rows

    def _ignored(self, server: str, answer: DnsAnswer, pod: str) -> list[FqdnAddress]:
        """Record an answer of an untrusted server: it counts for the Pod's rules that drop or reject."""
        if not self.cache.matching(answer.name):
            return []
        self.ignored += 1
        if pod not in self.own.pods():
            log.info(
                "A DNS server that is not trusted answers on names in rules: no rule allows its addresses",
                scope=self.scope, pod=pod, server=server,
            )  # fmt: skip
        rows = self.own.learn(pod, server, answer, self._denied_by(answer.name), time.monotonic())
        self._write_own_rows()
        return [row for row in rows if isinstance(row, self._scope.addresses)]

    def _denied_by(self, name: str) -> tuple[str, ...]:
        """Return the patterns of rules that drop or reject, which a name matches."""
        rows = (self._facts.get(self._scope.patterns, pattern) for pattern in self.cache.matching(name))
        return tuple(row.pattern for row in rows if row is not None and row.denies)

    def _write_own_rows(self) -> None:
        for row, present in self.own.changes().items():
            if present:
                self._facts.put(row, urgent=True)
            else:
                self._facts.drop(type(row), row.key)
                self._met.discard(str(row.key))

    def _write_rows(self) -> None:
        for row, present in self.cache.changes().items():
            if present:
                self._facts.put(row, urgent=True)
            else:
                self._facts.drop(self._scope.addresses, row.key)
                self._met.discard(row.key)
            self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._follow(), name="FQDN patterns")
            tasks.create_task(self._write(), name="FQDN cache file")
            await self._refresh(tasks)

    async def _follow(self) -> None:
        """Keep the patterns equal to those of the rules."""
        with self._facts.watch(self._scope.patterns, SentPolicy) as changed:
            while True:
                changed.clear()
                patterns = {row.pattern for row in self._facts.all(self._scope.patterns)}
                # before all policies are there, what an earlier agent knew is kept
                if patterns or self._facts.feeds.has(SentPolicy):
                    for name in self.cache.set_patterns(patterns):
                        self._unanswered.setdefault(name, 0)
                    self._unanswered = {k: at for k, at in self._unanswered.items() if k in patterns}
                    self._write_rows()
                    self.own.set_patterns(self._denied_by)
                    self._write_own_rows()
                    self._changed.set()
                await changed.wait()

    async def _refresh(self, tasks: asyncio.TaskGroup) -> None:
        """Query names whose addresses expire, and those that no Pod may query again."""
        while True:
            now = time.monotonic()
            new = [name for name, at in self._unanswered.items() if at <= now]
            for name in dict.fromkeys([*self.cache.due(now), *new]):
                self._unanswered.pop(name, None)
                if name not in self._asking:
                    self._asking.add(name)
                    tasks.create_task(self._ask(name), name="DNS query")
            self._write_rows()
            self.own.expire(now)
            self._write_own_rows()
            self._report_fill()
            await asyncio.sleep(1)

    def nearly_full(self) -> list[Fill]:
        """Return the limits of the cache that are nearly reached."""
        return [fill for fill in self.cache.fills() if fill.share >= NEARLY_FULL]

    def _report_fill(self) -> None:
        """Log one line each time that a limit is nearly reached."""
        fills = self.nearly_full()
        for fill in fills:
            if fill.limit not in self._reported:
                log.warning(
                    "Names in rules nearly reach their limit: beyond it, those used least recently match no rule",
                    scope=self.scope, limit=fill.limit, pattern=fill.pattern, used=fill.used, most=fill.most, what=fill.what,
                )  # fmt: skip
        self._reported = frozenset(reached.limit for reached in fills)

    async def _ask(self, name: str) -> None:
        try:
            async with self._questions:
                addresses = await self._resolved(name)
        except AntreaError as error:
            log.v(1).info("The addresses of a name in a rule stay as they are", name=name, err=str(error))
            self._again(name, time.monotonic() + self._retry)
        else:
            self.cache.answered(name, addresses, time.monotonic())
            self._write_rows()
        finally:
            self._asking.discard(name)

    async def _resolved(self, name: str) -> list[tuple[str, int]]:
        """Resolve a name to addresses, each with the seconds that it may be kept. Raises Unavailable, Invalid."""
        from antrea.outside.name_server import ask  # noqa: PLC0415 (3.4 MiB)

        trouble: AntreaError = Unavailable(f"{name}: no DNS server is known: set dnsServerOverride")
        for server in self._scope.servers():
            try:
                said = [dns_answer(await ask(name, v6=v6, server=server)) for v6 in families(self._facts)]
            except Unavailable as error:
                trouble = error
            else:
                return [address for answer in said if answer for address in answer.addresses]
        raise trouble

    def _again(self, name: str, at: float) -> None:
        if name in self.cache:
            self.cache.retry(name, at)
        elif name in self.cache.patterns:
            self._unanswered[name] = at

    @property
    def scope(self) -> str:
        """Scope of the names: `pods` or `node`."""
        return self._scope.name

    def answers(self) -> list[FqdnAnswer]:
        """Return the rows of `antctl get fqdncache`."""
        now = time.monotonic()
        return [FqdnAnswer(row.name, row.address, stamp_in(row.expires - now)) for row in self.cache.rows()]

    def own_answers(self, pod: str) -> list[FqdnAnswer]:
        """Return answers of untrusted servers to one Pod, or to the Node."""
        now = time.monotonic()
        return [
            FqdnAnswer(row.name, row.address, stamp_in(row.expires - now), row.server)
            for row in self.own.of_pod(pod)
        ]

    def _read(self) -> None:
        try:
            kept = decode_msgpack(unsealed(FORMAT, read_bytes(self._keep)), Kept, str(self._keep))
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("Could not read the addresses of names in rules", path=self._keep, err=str(error))
            return
        except (Damaged, Invalid) as error:
            log.error(
                "The file of addresses of names is damaged: names in rules have none until they are asked for again",
                error=error, path=self._keep, aside=set_aside(self._keep),
            )  # fmt: skip
            return
        self.cache.restore(kept.patterns, kept.names, kept.users, time.monotonic())
        self._write_rows()

    async def _write(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = time.monotonic()
            data = msgspec.msgpack.encode(Kept(self.cache.patterns, self.cache.names(), self.cache.users()))
            if data != self._written:
                try:
                    await asyncio.to_thread(exchange, self._keep, sealed(FORMAT, (data,)))
                    self._written = data
                except OSError as error:
                    log.warning(
                        "Could not keep the addresses of names in rules", path=self._keep, err=str(error)
                    )
            await asyncio.sleep(max(EVERY_SECONDS, SHARE * (time.monotonic() - began)))


def nearly_full(caches: Sequence[FqdnController]) -> str:
    """Describe the limits of caches that are nearly reached; empty if none."""
    fills = (
        f"of {fill.pattern or 'all'} in rules on {cache.scope} {fill.used} of {fill.most} {fill.what}"
        for cache in caches
        for fill in cache.nearly_full()
    )
    text = ", ".join(fills)
    return (
        f"domain names nearly reach their limit: {text}; beyond it, those used least recently match no rule"
        if text
        else ""
    )


def untrusted(caches: Sequence[FqdnController]) -> str:
    """Describe Pods that query untrusted DNS servers; empty if none."""
    clients = [
        (pod or f"a process of {cache.scope}", cache.own.of_pod(pod))
        for cache in caches
        for pod in cache.own.pods()
    ]
    if not clients:
        return ""
    text = ", ".join(f"{answers[-1].server} by {who}" for who, answers in clients[:MAX_NAMED])
    more = f" and {len(clients) - MAX_NAMED} more" if len(clients) > MAX_NAMED else ""
    return (
        f"DNS servers that are not trusted are asked for names in rules: {text}{more}; no rule allows the addresses that they give:"
        " have Pods ask the cluster's DNS, or name the servers in fqdnTrustedDNSServers"
    )


def packet_in_handler(
    names: FqdnController, resume: Callable[[PacketIn], None]
) -> Callable[[PacketIn], None]:
    """Make the handler of answers that the switch holds; those that are not resumed are dropped. A copy of a passed one is
    noted.
    """

    def handle(packet_in: PacketIn) -> None:
        if not packet_in.held:
            names.note(packet_in.frame, names.pod_of(packet_in))
            return
        names.handle(
            packet_in.frame, lambda goes_on: resume(packet_in) if goes_on else None, names.pod_of(packet_in)
        )

    return handle

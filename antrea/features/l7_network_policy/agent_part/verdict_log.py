"""Log of the L7 engine: its verdicts and the requests and handshakes it saw, each with its policy and rule, rotated by size.

The engine writes JSON lines to a Unix socket; without a reader they are lost. They contain texts of requests, which a client
chooses: these stay within the JSON, and a line that is too long is counted and left out, as are more requests than `MAX_SEEN`.
parity: pkg/agent/controller/networkpolicy/l7engine/reconciler.go (place and name of its eve-log)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.decoding import decode_json, guarded
from antrea.errors import Invalid
from antrea.features.network_policy.agent.deciding_rule import reference
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.log.rotated_file import RotatedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.config.agent_sections import AuditLogging
    from antrea.engine import Facts

log = klog.logger(__name__)
FILE: Final = Path("/var/log/antrea/networkpolicy/l7engine/eve-verdicts.json")
MAX_BYTES: Final = 1 << 18
"""Maximum number of bytes of one line: a verdict has its packet, of 64 KiB at most."""
VERDICT: Final = "alert"
MAX_SEEN: Final = 200
"""Maximum number of requests and handshakes logged per second: they come as fast as clients send."""
LOST = Metric(
    "antrea_agent_l7_verdicts_lost_count",
    "counter",
    "ALPHA",
    "Number of verdicts of the L7 engine that could not be logged.",
)
UNLOGGED = Metric(
    "antrea_agent_l7_requests_unlogged_count",
    "counter",
    "ALPHA",
    "Number of requests and handshakes that were not logged, since there were too many in a second.",
)


class VerdictLog:
    """Log that listens at `socket`."""

    def __init__(
        self,
        facts: Facts,
        rule_of: Callable[[int], str],
        socket: Path,
        limits: AuditLogging,
        path: Path = FILE,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rule_of` returns the name of the rule that has a VLAN; empty if none."""
        self._facts, self._rule_of, self._socket, self._now = facts, rule_of, socket, now
        self._file = RotatedFile(path, limits)
        self._lost = self._unlogged = 0
        self._second, self._seen = 0, 0
        self._writers: set[asyncio.StreamWriter] = set()

    def text(self) -> str:
        """Metrics, in Prometheus' format."""
        return LOST.text([Sample(self._lost)]) + UNLOGGED.text([Sample(self._unlogged)])

    async def run(self) -> None:
        """Run until cancelled."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._read, self._socket, limit=MAX_BYTES)
        try:
            # serve_forever() would wait for the engine to close its connection, from Python 3.12 on
            await asyncio.Event().wait()
        finally:
            server.close()
            for writer in tuple(self._writers):
                writer.close()
            self._file.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                try:
                    line = await reader.readuntil(b"\n")
                except asyncio.LimitOverrunError as error:
                    await reader.readexactly(error.consumed)
                    self._lost += 1
                    continue
                await self._write(line)
        except (EOFError, OSError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _write(self, line: bytes) -> None:
        try:
            event = decode_json(line, dict[str, Any], "event")
        except Invalid:
            self._lost += 1
            return
        if event.get("event_type") != VERDICT and self._are_too_many():
            self._unlogged += 1
            return
        try:
            if self._file.write(guarded("event", self._text, event)):
                await asyncio.to_thread(self._file.tidy)
        except (OSError, Invalid) as error:
            self._lost += 1
            log.v(2).info("Failed to log a verdict of the L7 engine", err=str(error))

    def _text(self, event: dict[str, Any]) -> bytes:
        return msgspec.json.encode(self._named(event)) + b"\n"

    def _are_too_many(self) -> bool:
        second = int(self._now())
        if second != self._second:
            self._second, self._seen = second, 0
        self._seen += 1
        return self._seen > MAX_SEEN

    def _named(self, event: dict[str, Any]) -> dict[str, Any]:
        """With its policy, in the signature as upstream's, whose own text becomes the category. The request of a verdict is at `request`:
        readers of upstream's log find it in an event of its own."""
        origin, alert = self._origin(event), event.get("alert")
        if "http" in event and event.get("event_type") == VERDICT:
            event["request"] = event.pop("http")
        if not origin or not isinstance(alert, dict):
            return {**event, **origin}
        verb = "Reject" if alert.get("action") == "blocked" else "Allow"
        named = {**alert, "category": alert.get("signature"), "signature": f"{verb} by {origin['policy']}"}
        return {**event, "alert": named, **origin}

    def _origin(self, event: dict[str, Any]) -> dict[str, str]:
        """Return policy and rule of the tenant; none if it is gone."""
        vlans = event.get("vlan")
        vlan = vlans[-1] if isinstance(vlans, list) and vlans else None
        rule = self._rule_of(vlan) if isinstance(vlan, int) else ""
        for stated in self._facts.by(StatedRule, "rule", rule) if rule else ():
            policy = self._facts.get(SentPolicy, stated.policy)
            if policy is not None and stated.number < len(policy.policy.rules):
                name = policy.policy.rules[stated.number].name
                return {"policy": reference(policy.policy.source_ref), "rule": name}
        return {}

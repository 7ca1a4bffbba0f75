"""The log of the L7 engine's verdicts, as the agent writes it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING

from certificate_world import until

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent_sections import AuditLogging
from antrea.engine import Facts
from antrea.features.l7_network_policy.agent_part import verdict_log
from antrea.features.l7_network_policy.agent_part.verdict_log import VerdictLog
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule

if TYPE_CHECKING:
    from pathlib import Path


async def test_verdicts_are_logged_with_their_policy_and_long_or_broken_lines_are_counted(
    tmp_path: Path,
) -> None:
    facts = Facts()
    source = cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name="p", uid="p")
    nobody = cp.NetworkPolicyPeer()
    rule = cp.NetworkPolicyRule(
        direction="In", from_=nobody, to=nobody, services=(), enable_logging=False, name="no-secret"
    )
    facts.put(
        SentPolicy(cp.NetworkPolicy(metadata=ObjectMetadata(name="p"), rules=(rule,), source_ref=source))
    )
    facts.put(StatedRule("p", 0, "r1"))
    for _ in facts.drain():
        pass
    log = VerdictLog(
        facts,
        lambda vlan: "r1" if vlan == 3 else "",
        tmp_path / "s",
        AuditLogging(),
        file := tmp_path / "eve-verdicts.json",
    )
    task = asyncio.create_task(log.run())
    await until((tmp_path / "s").exists)
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    alert = {"action": "blocked", "signature": "Reject request"}
    event = {"event_type": "alert", "vlan": [3], "alert": alert, "http": {"url": '/"\n'}}
    writer.write(json.dumps(event).encode() + b"\nno JSON\n" + b"x" * (1 << 19) + b"\n")
    # these ended the session, uncounted: what comes after them is logged
    writer.write(b'{"x":' + b"[" * 3000 + b"]" * 3000 + b'}\n{"x":"\xff"}\n{"x":"\\ud800"}\n')
    seen = {"event_type": "http", "vlan": [3], "http": {"url": "/public"}}
    writer.write(json.dumps({**event, "vlan": [9]}).encode() + b"\n" + json.dumps(seen).encode() + b"\n")
    await until(lambda: file.exists() and len(file.read_bytes().splitlines()) == 3)
    first, second, third = map(json.loads, file.read_text().splitlines())
    policy = "AntreaClusterNetworkPolicy:p"
    named = {"action": "blocked", "signature": f"Reject by {policy}", "category": "Reject request"}
    event["request"] = event.pop("http")  # upstream's verdicts have none
    assert first == {**event, "alert": named, "policy": policy, "rule": "no-secret"}
    assert "policy" not in second
    assert third == {**seen, "policy": policy, "rule": "no-secret"}
    # three that cannot be decoded, "no JSON", and the pieces of the long line
    assert int(re.findall(r"lost_count (\d+)", log.text())[0]) >= 5
    task.cancel()
    async with asyncio.timeout(10):
        with contextlib.suppress(asyncio.CancelledError):
            await task
        # the engine goes on, and its connection is ended all the same
        assert await reader.read() == b""
    writer.close()


async def test_verdicts_that_a_full_disk_has_no_room_for_are_counted_and_the_engine_goes_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "eve-verdicts.json"
    file.symlink_to("/dev/full")
    log = VerdictLog(Facts(), lambda _: "", tmp_path / "s", AuditLogging(), file)
    task = asyncio.create_task(log.run())
    await until((tmp_path / "s").exists)
    _, writer = await asyncio.open_unix_connection(tmp_path / "s")
    writer.write(b'{"event_type": "alert"}\n' * 2)
    await until(lambda: "antrea_agent_l7_verdicts_lost_count 2" in log.text())
    assert not writer.is_closing()
    writer.close()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_requests_that_come_too_fast_are_counted_and_verdicts_are_logged(
    tmp_path: Path,
) -> None:
    log = VerdictLog(
        Facts(),
        lambda _: "",
        tmp_path / "s",
        AuditLogging(),
        file := tmp_path / "eve-verdicts.json",
        lambda: 7.5,
    )
    task = asyncio.create_task(log.run())
    await until((tmp_path / "s").exists)
    _, writer = await asyncio.open_unix_connection(tmp_path / "s")
    writer.write(b'{"event_type": "http"}\n' * (verdict_log.MAX_SEEN + 5) + b'{"event_type": "alert"}\n')
    await until(lambda: file.exists() and b"alert" in file.read_bytes())
    assert file.read_bytes().count(b"http") == verdict_log.MAX_SEEN
    assert "antrea_agent_l7_requests_unlogged_count 5" in log.text()
    writer.close()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

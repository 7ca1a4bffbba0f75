"""What the serving process of the controller takes for 1,000 agents: 4,000 TLS watches, of which every tenth stops reading.

`python -m benchmarks.api_watchers [AGENTS] [ROUNDS]`. Each round changes one object of each of the four resources
that agents watch; its latency is from saying so to the computing process's channel to the line at a reader.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from figure import show

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.controller.apiserver.ipc import Start
from antrea.controller.apiserver.process import ApiServerProcess, Publisher, publish_empty
from antrea.engine import Facts

GROUP = cp.GROUP
SLOW_EVERY = 10
CLIENTS = 2
ROUND_SECONDS = 30.0
MEMBERS = 5000
"""Of the AddressGroup, which every agent gets."""


def member(name: str) -> cp.GroupMember:
    return cp.GroupMember(pod=cp.PodReference(name=name, namespace="bench"), ips=(os.urandom(16),))


def policy(mark: str) -> cp.NetworkPolicy:
    """About 4 KiB."""
    peer, rules = cp.NetworkPolicyPeer(address_groups=("g",)), []
    for number in range(20):
        rule = cp.NetworkPolicyRule(
            direction="In",
            from_=peer,
            to=cp.NetworkPolicyPeer(),
            enable_logging=False,
            name=f"{mark}-{number}",
        )
        rules.append(rule)
    return cp.NetworkPolicy(metadata=ObjectMetadata(name="p", uid="p"), rules=tuple(rules))


class Run:
    """One front, its watches and what they say."""

    def __init__(self, agents: int, directory: Path) -> None:
        self._nodes = [f"node-{number}" for number in range(agents)]
        self._directory = directory
        self._clients: list[asyncio.subprocess.Process] = []
        self.front = ApiServerProcess(Facts())

    async def start(self) -> Publisher:
        token = self._directory / "token"
        start = Start(
            port=0,
            token_file=str(token),
            verbosity=0,
            gates=(),
            certificate_file=str(self._directory / "none"),
        )
        publisher = await self.front.start(start)
        group = ObjectMetadata(name="g", uid="g")
        many = cp.AddressGroup(metadata=group, group_members=tuple(member(f"m{n}") for n in range(MEMBERS)))
        publisher.put(GROUP, "addressgroups", "g", many, span=self._nodes)
        publisher.put(GROUP, "appliedtogroups", "g", cp.AppliedToGroup(metadata=group), span=self._nodes)
        publisher.put(GROUP, "egressgroups", "g", cp.EgressGroup(metadata=group), span=self._nodes)
        publisher.put(GROUP, "networkpolicies", "p", policy("first"), span=self._nodes)
        publish_empty(publisher)
        return publisher

    async def watch(self) -> None:
        """All watches, begun."""
        share = len(self._nodes) // CLIENTS
        for first in range(0, share * CLIENTS, share):
            words = [self.front.port, self._directory / "token", first, share, SLOW_EVERY]
            client = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.api_watchers_client",
                *map(str, words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 26,
            )
            self._clients.append(client)
        await self._said("ready", 300)

    async def _said(self, line: str, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            for client in self._clients:
                assert client.stdout is not None
                heard = await client.stdout.readline()
                if heard.decode().strip() != line:
                    raise RuntimeError(f"a client said {heard!r} instead of {line!r}")

    async def round(self, publisher: Publisher, number: int) -> None:
        """One change of each resource, until all readers have it."""
        mark = f"round-{number}-{time.monotonic_ns()}-"
        own = [(member(f"{mark}{node}"), node) for node in self._nodes]
        publisher.put(GROUP, "networkpolicies", "p", policy(mark), span=self._nodes)
        publisher.change(GROUP, "addressgroups", "g", added=[(member(mark), "")])
        publisher.change(GROUP, "appliedtogroups", "g", added=own)
        publisher.change(GROUP, "egressgroups", "g", added=own)
        await publisher.drained()
        await self._said(str(number), ROUND_SECONDS)

    def memory(self) -> float:
        """MiB resident in the serving process."""
        status = Path(f"/proc/{self.front.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    async def latencies(self) -> dict[int, list[float]]:
        """Of all rounds, in milliseconds."""
        found: dict[int, list[float]] = {}
        for client in self._clients:
            out, _ = await client.communicate(b"")
            for number, values in json.loads(out.splitlines()[-1]).items():
                found.setdefault(int(number), []).extend(values)
        return found

    async def stop(self) -> None:
        for client in self._clients:
            if client.returncode is None:
                client.kill()
                await client.wait()
        await self.front.stop()


async def main(agents: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Run(agents, Path(directory))
        publisher = await run.start()
        hearing = asyncio.ensure_future(run.front.run())
        try:
            show("api_watchers_idle", "MiB", [run.memory()])
            began = time.monotonic()
            await run.watch()
            show("api_watchers_begin", "s", [time.monotonic() - began])
            for number in range(rounds):
                await run.round(publisher, number)
            memory = run.memory()
            found = await run.latencies()
        finally:
            hearing.cancel()
            await run.stop()
        p99 = [statistics.quantiles(values, n=100)[98] for values in found.values()]
        show(f"api_watchers_{agents}_agents_p99", "ms", p99, target=1000)
        show(f"api_watchers_{agents}_agents_memory", "MiB", [memory], target=300)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 1000, int(sys.argv[2]) if sys.argv[2:] else 20))

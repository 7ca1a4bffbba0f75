"""How long does a user's kubectl wait for our webhooks while 100,000 Pods are computed beside them?

python -m benchmarks.admission
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import aiohttp
import msgspec
from aiohttp import web
from figure import Against, show

from antrea.controller.webhook.admission import Listing, routes
from antrea.engine import Engine, Facts, Unit
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Installation, wanted_gates
from antrea.features.network_policy.tier import DEFAULT_TIERS, TierRow, TierUse
from antrea.features.registry.webhooks import WATCHED, WEBHOOKS
from benchmarks import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.admission import UserInfo

PODS = 100_000
POLICIES = 5_000
RULES = 20
"""In the policy that is reviewed."""
ASKED = 1_500
"""Reviews in one measurement, one after the other, over TLS."""
TIMES = 3
TARGET_MILLISECONDS = 50.0


class Pod(Fact, frozen=True):
    name: str
    address: int

    @property
    def key(self) -> str:
        return self.name


class Generation(Fact, frozen=True):
    """Read by every job."""

    number: int


class Member(msgspec.Struct, frozen=True):
    name: str
    text: str
    rank: ClassVar[int] = 50
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.name


def member(facts: Facts, pod: Pod) -> Iterator[Member]:
    generation = facts.get(Generation)
    yield Member(pod.name, f"{pod.address}/{generation.number if generation else 0}")


class Nowhere:
    """An API server without objects: policies of known tiers ask it nothing."""

    async def find(self, path: str, kind: type) -> Any:
        return None

    async def all(self, path: str, kind: type) -> Listing:
        return Listing()

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool:
        return False


class Discard:
    """A sink of which only the pass before it is measured."""

    async def apply(self, put: Any, drop: Any) -> None: ...

    async def resync(self, entries: Any) -> None: ...

    async def sweep(self, category: int) -> None: ...


async def serve() -> None:
    """The front's part: answers until it is killed; says its port and CA first."""
    facts = Facts()
    facts.put(Installation(gates=wanted_gates({})))
    for tier in DEFAULT_TIERS:
        facts.put(TierRow(tier.metadata.name, tier.spec.priority))
    for number in range(POLICIES):
        facts.put(TierUse("", f"policy-{number}", "application"))
    for watched in WATCHED:
        facts.synced(watched.fact)
    app = web.Application()
    for path, handler in routes(WEBHOOKS, facts, Nowhere()).items():
        app.router.add_post(path, handler)
    await answering.serve(app)


def compute() -> None:
    """The computing process's part: passes over all Pods, one after the other, until it is killed."""
    facts = Facts()
    engine = Engine(facts, (Unit(over=Pod, entries=member),), {Member: Discard()})
    for number in range(PODS):
        facts.put(Pod(f"pod-{number}", number))
    for generation in range(1_000_000):
        facts.put(Generation(generation))
        engine.plan()
        if generation == 0:
            print("computing", flush=True)


@contextmanager
def started(part: str) -> Iterator[str]:
    """This module as a process doing `part`; the line it says when it has begun."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.admission", part], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def review() -> bytes:
    """A new policy of many rules."""
    peer = {"podSelector": {"matchLabels": {"app": "db"}}}
    rule = {"action": "Drop", "from": [peer], "ports": [{"protocol": "TCP", "port": 80, "endPort": 90}]}
    spec = {
        "priority": 5,
        "tier": "application",
        "appliedTo": [peer],
        "ingress": [{**rule, "name": f"rule-{number}"} for number in range(RULES)],
    }
    asked = {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "p"}, "spec": spec}}
    return json.dumps({"kind": "AdmissionReview", "request": asked}).encode()


async def milliseconds(server: dict[str, Any]) -> list[float]:
    """Of each review, from sending it to having read the verdict."""
    tls = ssl.create_default_context(cadata=server["ca"])
    body, url = review(), f"https://localhost:{server['port']}/validate/acnp"
    taken = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        for _ in range(ASKED):
            begin = time.perf_counter()
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                verdict = await answer.json()
            taken.append((time.perf_counter() - begin) * 1e3)
            assert verdict["response"]["allowed"]
    return taken


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def main() -> None:
    alone, busy, middle = [], [], []
    with started("serve") as said:
        server = json.loads(said)
        for _ in range(TIMES):
            alone.append(p99(asyncio.run(milliseconds(server))))
            with started("compute"):
                taken = asyncio.run(milliseconds(server))
            busy.append(p99(taken))
            middle.append(statistics.median(taken))
    show("admission_p50_while_100000_pods_are_computed", "ms", middle)
    show(
        "admission_p99_while_100000_pods_are_computed", "ms", busy,
        against=Against("admission_p99_alone", tuple(alone)), target=TARGET_MILLISECONDS,
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:] == ["compute"]:
        compute()
    else:
        main()

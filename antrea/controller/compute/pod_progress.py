"""Publish to each agent up to which resourceVersion its Node's Pods are processed, after all resulting facts are written.

A Pod that is about to start counts as processed only once watches of policies have caught up, too: `watch_barrier.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.errors import Refused, Unavailable
from antrea.facts.cluster import Pod, PodFeedProgress
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from antrea.apis import core
    from antrea.engine import Facts
    from antrea.facts.fact import Fact

log = klog.logger(__name__)

AGAIN_SECONDS = 0.1
ASKED_SECONDS = 5.0
"""Timeout of the barrier; then it is tried again."""
PAUSE_SECONDS = 0.02
"""At least, and as long as it took to ask, before it is asked for the Pods that came meanwhile."""
TOGETHER = 32
"""Namespaces that are asked for together, unless one Node has Pods of more."""


class PodProgressPublisher:
    """Writes PodFeedProgress; not while a feed is interrupted, since a policy may have been created meanwhile.

    `barrier` returns when feeds have received everything that existed, at its call, for Pods of some Namespaces.
    """

    def __init__(
        self,
        facts: Facts,
        troubled: Callable[[], bool],
        barrier: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        self._facts = facts
        self._troubled = troubled
        self._barrier = barrier
        self._latest: dict[str, int] = {}
        self._starting: dict[str, set[str]] = {}
        """Namespaces of the Pods that are about to start, by Node."""
        self._news = asyncio.Event()

    def of(self, kind: type[Fact]) -> Callable[[Any], None]:
        """Return the function that the feed of `kind` calls with each object."""
        return self.note if kind is Pod else _ignore

    def note(self, pod: core.Pod) -> None:
        """The caller writes the row of this Pod without awaiting in between."""
        node = pod.spec.node_name
        if node and not pod.spec.host_network:
            version = int(pod.metadata.resource_version or 0)
            self._latest[node] = max(version, self._latest.get(node, 0))
            if not pod.status.pod_ips and pod.status.phase in ("", "Pending"):
                self._starting.setdefault(node, set()).add(pod.metadata.namespace)
            self._news.set()

    async def run(self) -> None:
        """For ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._news.wait()
            if self._troubled():
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self._publish(self._pop_versions([node for node in self._latest if node not in self._starting]))
            began = clock()
            if self._starting and not await self._starts():
                await asyncio.sleep(AGAIN_SECONDS)
            elif self._starting:
                await asyncio.sleep(max(PAUSE_SECONDS, clock() - began))
            if not self._latest:
                self._news.clear()

    async def _starts(self) -> bool:
        """Some of the Nodes where Pods are about to start; whether the API server has answered."""
        nodes, namespaces = list[str](), set[str]()
        for node, names in self._starting.items():
            if not nodes or len(namespaces | names) <= TOGETHER:
                nodes.append(node)
                namespaces |= names
        starting = {node: self._starting.pop(node) for node in nodes}
        latest = self._pop_versions(nodes)
        try:
            async with asyncio.timeout(ASKED_SECONDS):
                await self._barrier(namespaces)
        except (Unavailable, Refused, TimeoutError) as error:
            log.warning(
                "Could not confirm that policy watches are caught up; new Pods wait", nodes=nodes, err=error
            )
            for node, version in latest.items():
                self._latest[node] = max(version, self._latest.get(node, 0))
                self._starting.setdefault(node, set()).update(starting[node])
            return False
        self._publish(latest)
        return True

    def _pop_versions(self, nodes: Iterable[str]) -> dict[str, int]:
        return {node: self._latest.pop(node) for node in nodes}

    def _publish(self, latest: dict[str, int]) -> None:
        for node, version in latest.items():
            self._facts.put(PodFeedProgress(node, version))


def _ignore(_: object) -> None:
    """Only Pods wait."""

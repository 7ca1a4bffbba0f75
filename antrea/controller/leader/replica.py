"""This process as one of several replicas: its identity in the election, and what it publishes about that."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.outside.kube.leadership import LeaderOnlyKube, Leadership
from antrea.outside.kube.lease import LeaseKeeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.controller.apiserver.process import Publisher
    from antrea.outside.kube.client import Kube

LEASE = "antrea-controller"
TOLD_SECONDS = 0.2
"""Seconds between a write in etcd and its delivery by watches, with a wide margin."""


class Replica:
    """`kube` writes only while this replica leads, which `lead` tracks. `election` None: it is the only one."""

    def __init__(self, kube: Kube | None, election: LeaseKeeper | None = None) -> None:
        self.election = election
        self.lead = election.lead if election else Leadership()
        self.kube = LeaderOnlyKube(kube.access, self.lead) if kube and election else kube

    async def now(self, caught_up: Callable[[], Awaitable[None]]) -> None:
        """Wait until feeds have received the current state of kube-apiserver, and then for `caught_up`.

        A feed that is cut off without noticing would continue with old state: this reads from etcd itself through
        kube-apiserver, and then leaves watches the time to deliver. Raises Unavailable, Refused.
        """
        if self.election:
            await self.election.read()
            await asyncio.sleep(TOLD_SECONDS)
        await caught_up()

    def publish_to(self, publisher: Publisher) -> None:
        """Let the front know how the election stands, now and whenever that changes."""

        def publish() -> None:
            publisher.leader(self.lead.address, is_self=self.lead.leads())

        self.lead.listeners.append(publish)
        publish()


def replica(kube: Kube | None, *, elect: bool, namespace: str, port: int) -> Replica:
    """Return the replica of the Pod that the environment names. Raises Invalid if it cannot take part in an election."""
    if not elect:
        return Replica(kube)
    if kube is None:
        raise Invalid("--leader-elect", "needs an API server")
    address = os.environ.get("POD_IP", "")
    if not address:
        raise Invalid("POD_IP", "is not set: with --leader-elect other replicas have to reach this one")
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    # another one after each start: what a process before has begun is not this one's
    me = f"{os.environ.get('POD_NAME', 'antrea-controller')}_{uuid.uuid4()}"
    return Replica(kube, LeaseKeeper(kube, namespace, LEASE, me=me, address=where))

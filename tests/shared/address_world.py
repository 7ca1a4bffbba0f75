"""Replicas of the controller that give addresses to Egresses, an API server, its watches that lag, and writes that come late."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.crd.egress import Egress
from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.egress_address import EGRESSES, EgressAddress
from antrea.apis.status import Status
from antrea.engine import Engine, Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership
from antrea.features.egress.controller.allocation import UNITS
from antrea.features.egress.controller.feature import egress_rows
from antrea.features.external_ip_pool.address import given
from antrea.features.external_ip_pool.controller import FEATURE
from antrea.features.external_ip_pool.pool import POOLS, PoolRow, pool_row
from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube
from antrea.outside.kube.egress_address_sink import EgressAddressSink

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from antrea.engine import Unit

Object = dict[str, Any]
POOL_OF = {"p": "10.0.0.", "q": "10.0.1."}


def addresses(spec: Object) -> list[str]:
    """All that an Egress names."""
    return [ip for ip in (spec.get("egressIP"), *spec.get("egressIPs", ())) if ip]


class Api:
    """Objects, what happened to them, and writes that are still on their way."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.events: list[tuple[str, Object | None]] = []
        self.late: list[Callable[[], None]] = []
        self.hand: set[str] = set()
        """Egresses whose address a user wrote."""
        self.count = 0

    def tell(self, path: str, found: Object | None) -> None:
        if found is not None:
            self.count += 1
            found["metadata"]["resourceVersion"] = str(self.count)
            self.objects[path] = found
        else:
            del self.objects[path]
        self.events.append((path, json.loads(json.dumps(found))))

    def make(self, path: str, spec: Object) -> None:
        """A user makes an object, another one of its name, or another spec of it."""
        old = self.objects.get(path)
        spec = {"appliedTo": {}} | spec if path.startswith(EGRESSES) else {"nodeSelector": {}} | spec
        if old is not None:
            old["spec"] = spec
            old["metadata"]["generation"] += 1
            self.tell(path, old)
            return
        self.count += 1
        meta = {"name": path.rpartition("/")[2], "uid": f"u{self.count}", "generation": 1}
        self.tell(path, {"metadata": meta | {"creationTimestamp": f"{self.count:09}"}, "spec": spec})

    def egresses(self) -> dict[str, Object]:
        return {
            path.rpartition("/")[2]: one["spec"]
            for path, one in self.objects.items()
            if path.startswith(EGRESSES)
        }

    def spans(self, pool: str) -> tuple[Any, ...]:
        found = self.objects.get(f"{POOLS}/{pool}")
        return pool_row(msgspec.convert(found, ExternalIPPool)).spans if found else ()


class World:
    """`now` is the time of everybody's loop."""

    def __init__(
        self, sink: type[EgressAddressSink] = EgressAddressSink, units: Sequence[Unit] = UNITS
    ) -> None:
        self.api = Api()
        self.now = 0.0
        self.loop = asyncio.new_event_loop()
        self.loop.time = lambda: self.now  # type: ignore[method-assign]
        self.outcomes: list[str] = []
        """Of the next writes: now, lost, late, refused."""
        self.twice: list[str] = []
        """Addresses that were given while another had them, or are asked for in vain for ever."""
        self._made = (sink, units)
        self.replicas = [Replica(self, *self._made) for _ in range(2)]

    def restart(self, which: int) -> None:
        leads = self.replicas[which].leads
        self.replicas[which] = Replica(self, *self._made)
        if leads:
            self.lead(which)

    def lead(self, which: int) -> None:
        """Nobody leads; what is on its way comes or is lost; `which` hears everything, and leads."""
        for one in self.replicas:
            one.leads = False
            one.facts.drop(FencedLeadership, "self")
        self.end_of_late()
        chosen = self.replicas[which]
        self.hear_all(chosen)
        chosen.leads = True
        chosen.facts.put(FencedLeadership())

    def hear_all(self, chosen: Replica) -> None:
        """What was written before it leads."""
        chosen.hear(len(self.api.events))

    def end_of_late(self, *, lost: bool = False) -> None:
        """So much time has gone by that writes have come through or never will."""
        late, self.api.late = self.api.late, []
        for write in () if lost else late:
            write()
        self.now += 100.0

    def write(self, path: str, body: Object, knew: Collection[str]) -> bool:
        """Whether it was the version that was meant; `knew`: who named the address, to the writer when it wrote."""
        found = self.api.objects.get(path)
        meta = body["metadata"]
        if found is None or any(found["metadata"][key] != meta[key] for key in ("uid", "resourceVersion")):
            return False
        name = path.rpartition("/")[2]
        spec = {key: value for key, value in (found["spec"] | body["spec"]).items() if value is not None}
        for address in addresses(spec):
            for other, theirs in self.api.egresses().items():
                unheard = other in self.api.hand and other not in knew
                mine = addresses(spec) if other == name else [address, *addresses(theirs)]
                if address not in addresses(found["spec"]) and mine.count(address) > 1 and not unheard:
                    self.twice.append(f"{address}: {name} and {other}")
        self.api.hand.discard(name)
        self.api.make(path, spec)
        return True

    def settle(self, which: int) -> None:
        """No more faults: what `which` gives once it has heard everything."""
        self.outcomes = []
        self.lead(which)
        chosen = self.replicas[which]
        for _ in range(60):
            before = (len(self.api.events), chosen.heard)
            chosen.hear(len(self.api.events))
            chosen.step()
            self.end_of_late()
            if before == (len(self.api.events), chosen.heard) and not chosen.todo:
                return
        self.twice.append(f"never at rest: {chosen.todo}")

    def close(self) -> None:
        self.loop.close()


class Wire(Kube):
    """What a replica sends to the API server, and what becomes of it."""

    def __init__(self, world: World, replica: Replica) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self._world = world
        self._replica = replica

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes = b"", content: str = ""
    ) -> tuple[int, bytes]:
        world, replica = self._world, self._replica
        await asyncio.sleep(0)
        if method == "GET":
            found = world.api.objects.get(path)
            return (200, json.dumps(found).encode()) if found else (404, b"{}")
        assert replica.leads, "a write of one that does not lead"
        asked = json.loads(body)
        knew = [
            row.name for ip in addresses(asked["spec"]) for row in replica.facts.by(EgressRow, "address", ip)
        ]
        outcome = world.outcomes.pop(0) if world.outcomes else "now"
        if outcome == "late":
            world.api.late.append(lambda: void(world.write(path, asked, knew)))
            raise Unavailable("nobody knows")
        if outcome == "refused" or not world.write(path, asked, knew):
            raise Refused([path], "the object has been modified")
        if outcome == "lost":
            raise Unavailable("nobody knows")
        return 200, b"{}"


def void(_: object) -> None:
    """The answer comes too late for anybody."""


class Replica:
    """Units over what it has heard, stepped by hand."""

    def __init__(self, world: World, sink: type[EgressAddressSink], units: Sequence[Unit]) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, [*units, *FEATURE.units])
        self.sink = sink(Wire(world, self), self.facts)
        self.leads = False
        self.heard = 0
        self.todo: dict[str, EgressAddress] = {}
        self._world = world

    def hear(self, most: int) -> None:
        """The next events of the watches; a restarted replica hears all of them again, which is as good as a list."""
        for path, found in self._world.api.events[self.heard : self.heard + most]:
            self.heard += 1
            collection, _, name = path.rpartition("/")
            ours = collection == EGRESSES
            if ours:
                rows = egress_rows(msgspec.convert(found, Egress)) if found else ()
                gone = {row.key for row in self.facts.all(EgressRow) if row.name == name}
                for row in rows:
                    self.facts.put(row)
                for key in gone - {row.key for row in rows}:
                    self.facts.drop(EgressRow, key)
            elif found is None:
                self.facts.drop(PoolRow, name)
            else:
                self.facts.put(pool_row(msgspec.convert(found, ExternalIPPool)))

    def step(self) -> None:
        """Units run, and what they want is written, or tried."""
        plan = self.engine.plan()
        self.todo |= {one.key: one for one in plan.put if isinstance(one, EgressAddress)}
        standing = self.engine.standing()
        self.todo = {
            name: standing[EgressAddress, name] for name in self.todo if (EgressAddress, name) in standing
        }
        try:
            self._world.loop.run_until_complete(self.sink.apply([*self.todo.values()], []))
        except Refused as error:
            self.todo = {one.key: one for one in error.entries}
        except Unavailable:
            pass
        else:
            self.todo = {}

    def statuses(self) -> dict[str, Status]:
        self.engine.plan()
        return {
            entry.path.rpartition("/")[2]: entry
            for entry in self.engine.standing().values()
            if isinstance(entry, Status)
        }


def complaints(world: World, which: int) -> list[str]:
    """What is wrong in a world at rest."""
    found, api = list(world.twice), world.api
    egresses = api.egresses()
    named = {spec.get("egressIP") for spec in egresses.values()}
    statuses = world.replicas[which].statuses()
    for name, spec in egresses.items():
        pool, address = spec.get("externalIPPool"), spec.get("egressIP", "")
        if not pool:
            continue
        spans = api.spans(pool)
        inside = bool(address) and any(span.holds(ip_address(address)) for span in spans)
        left = [n for span in spans for n in given(span) if str(ip_address(n)) not in named]
        if not inside and (left or address):
            found.append(f"{name} has {address!r}, left {left}")
        told = statuses[name].conditions[0].status if name in statuses else "nothing"
        if (
            inside
            and sum(one.get("egressIP") == address for one in egresses.values()) == 1
            and told != "True"
        ):
            found.append(f"{name} has {address}, its status says {told}")
        if not inside and told != "False":
            found.append(f"{name} has none, its status says {told}")
    for pool in POOL_OF:
        if spans := api.spans(pool):
            used = {
                spec["egressIP"]
                for spec in egresses.values()
                if spec.get("externalIPPool") == pool
                and any(span.holds(ip_address(spec.get("egressIP", "0.0.0.0"))) for span in spans)
            }
            usage = dict(statuses[pool].fields)
            total = sum(len(given(span)) for span in spans)
            if usage != {"usage.total": total, "usage.used": len(used)}:
                found.append(f"{pool} says {usage}, has {total}, {sorted(used)} used")
    return found

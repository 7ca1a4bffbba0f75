"""Addresses of pools after each recorded step are those that upstream's controller gave ($ANTREA_GOLDEN).

Differences, all of them on purpose: an address that is freed goes to the next that waits at once (upstream: when it tries
again); Services, which take addresses of these pools, too, are left out: tests/unit/features/service_external_ip/test_features_service_external_ip.py.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from address_world import World
from recording import GOLDEN, inputs

from antrea.apis.egress_address import EGRESSES
from antrea.features.external_ip_pool.pool import POOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "raw/changes").is_dir(), reason="ANTREA_GOLDEN names no changes of pools"
)
KINDS = {"egress": EGRESSES, "eip": POOLS, "Egress": EGRESSES, "ExternalIPPool": POOLS}
WAITED = ("pool-one", "10.70.0.9", "EgressIP is successfully allocated")
STEPS = sorted(
    {file.name.removesuffix(".cmd.txt") for file in (GOLDEN / "raw/changes").glob("*.cmd.txt")},
    key=lambda name: (len(name), name),
)
EGRESS_DIFFERENCES = {(step, "eg-zz-exhausted"): WAITED for step in ("p3", "p4")}
POOL_DIFFERENCES = {
    **{(step, "pool-one"): (1, 1) for step in ("p3", "p4")},
    **{(f"p{step}", "pool-range"): (5, 0) for step in range(1, 7)},
    ("p7", "pool-cidr"): (6, 2),
}


def lines(name: str) -> Iterator[list[str]]:
    """Cells of a recorded table, without its head; they begin where its words do."""
    text = (GOLDEN / "raw/changes" / name).read_text()
    head, *rows = [row for row in text.splitlines() if not row.startswith("#")]
    places = [found.start() for found in re.finditer(r"\S+", head)]
    for row in rows:
        yield [row[one:other].strip() for one, other in zip(places, [*places[1:], None], strict=True)]


def recorded_egresses(step: str) -> dict[str, Any]:
    """Pool, address, and what IPAllocated says."""
    found = {}
    for name, pool, address, _, _, types, *more in lines(f"{step}.egresses.yaml"):
        said = dict(zip(types.split(","), more[-1].split(","), strict=True)) if types != "<none>" else {}
        address = "" if address == "<none>" else address
        found[name] = ("" if pool == "<none>" else pool, address, said.get("IPAllocated", ""))
    return found


def recorded_pools(step: str) -> dict[str, Any]:
    return {name: (int(total), int(used)) for name, total, used in lines(f"{step}.pools.txt")}


def do(world: World, step: str) -> None:
    """The recorded command, unless it was refused or is about Services."""
    text = (GOLDEN / f"raw/changes/{step}.cmd.txt").read_text()
    _, verb, kind, name, *more = shlex.split(text.splitlines()[0].removeprefix("# $"))
    if "# exit" in text or kind not in KINDS:
        return
    path = f"{KINDS[kind]}/{name}"
    if verb == "delete":
        world.api.tell(path, None)
        return
    spec = world.api.objects[path]["spec"] | json.loads(more[-1])["spec"]
    world.api.make(path, {key: value for key, value in spec.items() if value != ""})


def shown_egresses(world: World) -> dict[str, Any]:
    statuses = world.replicas[0].statuses()
    return {
        name: (
            spec.get("externalIPPool", ""),
            spec.get("egressIP", ""),
            statuses[name].conditions[0].message if name in statuses else "",
        )
        for name, spec in world.api.egresses().items()
    }


def shown_pools(world: World) -> dict[str, Any]:
    return {
        name: tuple(value for _, value in status.fields)
        for name, status in world.replicas[0].statuses().items()
        if status.fields
    }


def expected(recorded: dict[str, Any], differences: dict[tuple[str, str], Any], step: str) -> dict[str, Any]:
    """Each difference has to be one, where its object was recorded."""
    ours = {name: one for (when, name), one in differences.items() if when == step and name in recorded}
    assert all(recorded[name] != one for name, one in ours.items())
    return recorded | ours


def test_each_recorded_step_leaves_the_addresses_and_words_of_upstream() -> None:
    world = World()
    try:
        for one in inputs("ExternalIPPool", "Egress"):
            world.api.make(
                f"{KINDS[one['kind']]}/{one['metadata']['name']}", msgspec.to_builtins(one["spec"])
            )
        world.settle(0)
        for step in STEPS:
            do(world, step)
            world.settle(0)
            assert shown_egresses(world) == expected(recorded_egresses(step), EGRESS_DIFFERENCES, step), step
            assert shown_pools(world) == expected(recorded_pools(step), POOL_DIFFERENCES, step), step
        assert world.twice == []
    finally:
        world.close()

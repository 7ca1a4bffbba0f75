"""What is said of pools that do not exist, and of those that are deleted while Egresses use them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from admission_world import OK, World, named

from antrea.apis.crd.pool import ExternalIPPool
from antrea.features.external_ip_pool.pool import pool_row

POOL: dict[str, Any] = {"ipRanges": [{"cidr": "10.6.0.0/30"}], "nodeSelector": {}}
OTHER = pool_row(msgspec.convert(named(POOL, "other"), ExternalIPPool))
INSIDE = "until it does, Pods that the Egress selects get no packet out of the cluster"


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"externalIPPool": "other"}, ""),
        ({"externalIPPool": "nowhere"}, f"spec.externalIPPool: ExternalIPPool nowhere does not exist: {INSIDE}"),
        # no object has such a name, so the API server is not asked for it
        ({"externalIPPools": ["other", "../pods/db"]}, f"spec.externalIPPools[1]: ExternalIPPool ../pods/db does not exist: {INSIDE}"),
    ],
)  # fmt: skip
def test_who_names_a_pool_that_does_not_exist_is_warned_once(spec: dict[str, Any], warning: str) -> None:
    world, wanted = World(OTHER), named({"appliedTo": {}, **spec})
    assert world.decide("/validate/egress", wanted) == "; ".join([OK, warning] if warning else [OK])
    assert world.decide("/validate/egress", wanted, wanted) == OK
    assert [path for path in world.asked if ".." in path] == []


def test_who_deletes_a_pool_is_told_whom_it_leaves_without_an_address() -> None:
    users = [named({"appliedTo": {}, "externalIPPool": "x"}, f"e{number}") for number in range(6)]
    users.append(named({"appliedTo": {}, "externalIPPools": ["y", "x"]}, "d"))
    users.append(named({"appliedTo": {}, "externalIPPool": "y", "egressIP": "10.6.0.1"}, "other"))
    pool, path = named(POOL), "/validate/externalippool/users"
    said = (
        f"{OK}; ExternalIPPool x is used by Egress d, e0, e1, e2, e3 and 2 more: these lose their addresses, and until"
        " there is a pool of that name, Pods that they select get no packet out of the cluster"
    )
    egresses = "/apis/crd.antrea.io/v1beta1/egresses"
    assert World(objects={egresses: users}).decide(path, old=pool) == said
    assert World(objects={egresses: users[-1:]}).decide(path, old=pool) == OK
    assert World().decide(path, old=pool) == OK


def test_who_deletes_a_pool_is_told_which_services_lose_their_addresses() -> None:
    def service(name: str, pool: str, kind: str = "LoadBalancer") -> dict[str, Any]:
        notes = {"service.antrea.io/external-ip-pool": pool}
        return {"metadata": {"name": name, "namespace": "shop", "annotations": notes}, "spec": {"type": kind}}

    found = [
        service("web", "x"),
        service("api", "x"),
        service("other", "y"),
        service("inner", "x", "ClusterIP"),
    ]
    world = World(objects={"/apis/crd.antrea.io/v1beta1/egresses": [], "/api/v1/services": found})
    said = world.decide("/validate/externalippool/users", old=named(POOL))
    why = "these lose their external IPs until there is a pool of that name"
    assert said == f"{OK}; ExternalIPPool x is used by Service shop/api, shop/web: {why}"

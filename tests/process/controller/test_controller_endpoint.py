"""/endpoint says which policies a Pod has to do with, and of others that there are none; metrics are joined."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from certificate_world import ApiServer, api_server
from controller_program import controller_program

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.controller.apiserver.endpoint_query import Endpoint, Rule, endpoint, endpoint_of
from antrea.controller.apiserver.metrics import joined
from antrea.errors import Unavailable
from antrea.features.network_policy.antctl import endpoints
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.store import Store

if TYPE_CHECKING:
    from pathlib import Path

NONE = "could not find any endpoints matching your selection\n"
POD: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/shop/pods/web-1": {},
    "/api/v1/namespaces/default/pods/db": {},
}


def stores(*objects: Any) -> dict[tuple[str, str], Store]:
    """The filled stores of policies and groups."""
    rows = {row.plural: row for row in RESOURCES if row.group == cp.GROUP}
    plurals = {cp.AppliedToGroup: "appliedtogroups", cp.AddressGroup: "addressgroups"}
    made = {(cp.GROUP, name): Store(rows[name]) for name in (*plurals.values(), "networkpolicies")}
    for one in objects:
        made[cp.GROUP, plurals.get(type(one), "networkpolicies")].put(one.metadata.name, one)
    for store in made.values():
        store.sync()
    return made


def meta(name: str) -> ObjectMetadata:
    return ObjectMetadata(name=name, uid=name)


def members(*pods: str) -> tuple[cp.GroupMember, ...]:
    return tuple(cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop")) for pod in pods)


def test_a_pod_has_policies_of_its_groups_and_rules_of_its_peers() -> None:
    nobody, peer = cp.NetworkPolicyPeer(), cp.NetworkPolicyPeer(address_groups=("peers",))

    def rule(direction: str, one: cp.NetworkPolicyPeer, *groups: str) -> cp.NetworkPolicyRule:
        sides = (one, nobody) if direction == "In" else (nobody, one)
        return cp.NetworkPolicyRule(
            direction=direction, from_=sides[0], to=sides[1], enable_logging=False, applied_to_groups=groups
        )

    def policy(name: str, *rules: cp.NetworkPolicyRule, groups: tuple[str, ...] = ()) -> cp.NetworkPolicy:
        return cp.NetworkPolicy(
            metadata=meta(name), rules=rules, applied_to_groups=groups, source_ref=reference(name)
        )

    def reference(name: str) -> cp.NetworkPolicyReference:
        return cp.NetworkPolicyReference(type="K8sNetworkPolicy", namespace="shop", name=name, uid=name)

    made = stores(
        cp.AppliedToGroup(metadata=meta("webs"), group_members=members("web-1", "web-2")),
        cp.AppliedToGroup(metadata=meta("others"), group_members=members("web-2")),
        cp.AddressGroup(metadata=meta("peers"), group_members=members("web-1")),
        policy("a", rule("In", nobody), rule("Out", peer), rule("In", peer), groups=("webs",)),
        policy("b", rule("In", peer), groups=("others",)),
        policy("c", rule("In", nobody, "webs"), rule("In", nobody, "others")),
    )
    assert endpoint_of(made, "shop", "web-1") == Endpoint(
        "shop",
        "web-1",
        (reference("a"), reference("c")),
        (Rule(reference("a"), "In", 1), Rule(reference("b"), "In", 0)),
        (Rule(reference("a"), "Out", 0),),
    )
    assert endpoint_of(made, "elsewhere", "web-1") == Endpoint("elsewhere", "web-1")


def test_nothing_is_said_before_all_is_computed() -> None:
    made = stores()
    made[cp.GROUP, "networkpolicies"].synced = False
    with pytest.raises(Unavailable, match="networkpolicies are not computed yet"):
        endpoint_of(made, "shop", "web-1")


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (
            {"pod": "web-1", "namespace": "shop"},
            (200, '{"endpoints":[{"namespace":"shop","name":"web-1"}]}\n'),
        ),
        ({"pod": "web-2", "namespace": "shop"}, (404, NONE)),
        ({"pod": "../pods/web-1", "namespace": "shop"}, (404, NONE)),
        ({"pod": "web-1"}, (404, NONE)),
        ({"pod": "db"}, (200, '{"endpoints":[{"namespace":"default","name":"db"}]}\n')),
        ({"namespace": "shop"}, (400, "pod must be provided\n")),
    ],
)
async def test_endpoint_answers_for_pods_that_there_are(query: dict[str, Any], answer: Any) -> None:
    async with api_server(POD) as (_, kube):
        app = web.Application()
        app.router.add_get("/endpoint", endpoint(kube, stores()))
        async with TestClient(TestServer(app)) as client:
            said = await client.get("/endpoint", params=query)
            assert (said.status, await said.text()) == answer


SPACE = {"kubernetes.io/metadata.name": "shop"}
CRD = "/apis/crd.antrea.io/v1beta1/clusternetworkpolicies"
WEB = {"name": "web", "namespace": "shop"}
OF_SERVICES: dict[str, dict[str, Any]] = {
    "/api/v1/nodes/n1": {"metadata": {"uid": "n"}},
    "/api/v1/namespaces/shop": {"metadata": {"uid": "s", "labels": SPACE}},
    "/api/v1/namespaces/shop/pods/web-1": {
        "metadata": {"namespace": "shop", "uid": "w", "labels": {"app": "web", "tier": "a"}},
        "spec": {"nodeName": "n1"},
        "status": {"podIPs": [{"ip": "10.244.1.2"}]},
    },
    **{
        f"/api/v1/namespaces/shop/services/{name}": {
            "metadata": {"namespace": "shop", "uid": name},
            "spec": {
                "type": "NodePort",
                "clusterIPs": [ip],
                "selector": selector,
                "ports": [{"port": 80, "nodePort": port}],
            },
        }
        for name, ip, port, selector in (
            ("web", "10.96.0.10", 30080, {"app": "web"}),
            ("bare", "10.96.0.11", 30081, {"tier": "a"}),
            ("other", "10.96.0.12", 30082, {"app": "db"}),
            ("by-hand", "10.96.0.13", 30083, {}),
        )
    },
    f"{CRD}/at-node-port": {
        "metadata": {"uid": "p"},
        "spec": {
            "priority": 1,
            "appliedTo": [{"service": WEB}],
            "ingress": [{"action": "Drop", "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}],
        },
    },
    f"{CRD}/to-services": {
        "metadata": {"uid": "t"},
        "spec": {
            "priority": 2,
            "appliedTo": [{"namespaceSelector": {"matchLabels": SPACE}}],
            "egress": [
                {"action": "Drop", "toServices": [{**WEB, "name": "other"}]},
                {"action": "Drop", "toServices": [WEB]},
            ],
        },
    },
}
PRINTED = """Endpoint shop/web-1
Applied Policies on Endpoint:
Name        Namespace UID
to-services <NONE>    t

Egress Rules Referencing Endpoint as Destination: None

Ingress Rules Referencing Endpoint as Source: None

Applied Policies on NodePorts of Service shop/bare: None

Egress Rules Referencing Service shop/bare as Destination: None

Applied Policies on NodePorts of Service shop/web:
Name         Namespace UID
at-node-port <NONE>    p

Egress Rules Referencing Service shop/web as Destination:
Name        Namespace Index UID
to-services <NONE>    1     t

"""


async def test_a_controller_shows_what_judges_connections_to_a_pod_by_its_services(tmp_path: Path) -> None:
    """The whole program, and what antctl prints of its answer."""
    async with (
        controller_program(tmp_path, ApiServer(OF_SERVICES), {}) as (url, token),
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
    ):

        async def printed() -> str:
            query = {"pod": "web-1", "namespace": "shop"}
            async with session.get(f"{url}/endpoint", params=query, ssl=False) as answer:
                if answer.status != 200:
                    return await answer.text()
                lines = endpoints(await answer.json()).splitlines()
                return "".join(f"{line.rstrip()}\n" for line in lines)

        deadline = time.monotonic() + 30
        while (said := await printed()) != PRINTED and time.monotonic() < deadline:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.1)
        assert said == PRINTED


SERVING = """# HELP antrea_a first
# TYPE antrea_a gauge
antrea_a 1
# HELP process_open_fds Number
# TYPE process_open_fds gauge
process_open_fds 7.0
# HELP python_gc_objects_collected_total Objects
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 3.0
"""
COMPUTING = """# HELP process_open_fds Number
# TYPE process_open_fds gauge
process_open_fds 9.0
# HELP antrea_b second
# TYPE antrea_b counter
antrea_b{kind="x"} 2
"""


def test_metrics_of_two_processes_are_one_text_in_which_each_family_is_together() -> None:
    assert joined({"serving": SERVING, "computing": COMPUTING}) == (
        "# HELP antrea_a first\n"
        "# TYPE antrea_a gauge\n"
        "antrea_a 1\n"
        "# HELP process_open_fds Number\n"
        "# TYPE process_open_fds gauge\n"
        'process_open_fds{process="serving"} 7.0\n'
        'process_open_fds{process="computing"} 9.0\n'
        "# HELP python_gc_objects_collected_total Objects\n"
        "# TYPE python_gc_objects_collected_total counter\n"
        'python_gc_objects_collected_total{generation="0",process="serving"} 3.0\n'
        "# HELP antrea_b second\n"
        "# TYPE antrea_b counter\n"
        'antrea_b{kind="x"} 2\n'
    )

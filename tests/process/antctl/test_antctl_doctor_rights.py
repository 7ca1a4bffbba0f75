"""Rights that a ServiceAccount lacks, by SubjectAccessReviews of a server that denies some, and programs that wait for a configuration."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from loopback import answering

from antrea import VERSION
from antrea.antctl.doctor.checks import findings
from antrea.antctl.doctor.control_plane.checks import findings as control_plane_findings
from antrea.antctl.doctor.control_plane.cluster_state import ClusterState, Collector, waiting_refusals
from antrea.antctl.doctor.gather import gather
from antrea.antctl.doctor.refusal import refusal
from antrea.antctl.doctor.rights import CONNECTIONS, Right, expected, missing_rights
from antrea.antctl.failure import Failure
from antrea.antctl.request import Server
from antrea.outside.http.handlers import health
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from antrea.antctl.doctor.state import Finding

RECONCILE = "kubectl auth reconcile -f antrea.yml  # of this release; it adds rights that are missing"
RUNNING = ClusterState(namespace="net", controller_info={"version": f"v{VERSION}"})


class Reviewer:
    """Denies the rights whose attributes contain all of `denied`."""

    def __init__(self, **denied: str) -> None:
        self.denied = denied
        self.users: set[str] = set()
        self.connections: set[Any] = set()
        self.asked = 0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        spec = json.loads(await request.text())["spec"]
        self.users.add(spec["user"])
        self.connections.add(request.transport)
        self.asked += 1
        attributes = spec["resourceAttributes"]
        denied = bool(self.denied) and self.denied.items() <= {**attributes, "user": spec["user"]}.items()
        return web.json_response({"status": {"allowed": not denied}}, status=201)


async def found(reviewer: Reviewer, state: ClusterState = RUNNING) -> list[Finding]:
    async with answering(reviewer.answer) as url:
        return await asyncio.to_thread(lambda: list(missing_rights(Server(Access(url=url), 10.0), state)))


def accounts(state: ClusterState) -> dict[str, list[Right]]:
    """Rights by the user that has them."""
    found: dict[str, list[Right]] = {}
    for grant, rights in expected(state).items():
        found.setdefault(f"system:serviceaccount:{grant.namespace}:{grant.account}", []).extend(rights)
    return found


async def test_every_right_of_the_chart_is_asked_for_on_four_connections_of_each_account() -> None:
    reviewer = Reviewer()
    assert await found(reviewer) == []
    rights = accounts(RUNNING)
    assert reviewer.asked == sum(map(len, rights.values())) > 150
    assert reviewer.users == {f"system:serviceaccount:net:antrea-{name}" for name in ("agent", "controller")}
    assert reviewer.users == set(rights)
    assert len(reviewer.connections) == 2 * CONNECTIONS
    agent = rights["system:serviceaccount:net:antrea-agent"]
    assert Right("list", "", "configmaps", "antrea-config", "net") in agent
    assert Right("get", "", "configmaps", "extension-apiserver-authentication", "kube-system") in agent
    assert Right("patch", "", "pods/status", "", "") in agent


AGENT = "system:serviceaccount:net:antrea-agent"
CONTROLLER = "system:serviceaccount:net:antrea-controller"
AGGREGATOR = "system:serviceaccount:flow-aggregator:flow-aggregator"
INSTALLED = RUNNING._replace(deployments=[{"metadata": {"name": "flow-aggregator"}, "spec": {}}])
HELM = (
    "helm template antrea CHART -n net --set {} | kubectl auth reconcile -f -  # CHART: that of this release"
)


@pytest.mark.parametrize(
    ("state", "right", "user", "finding", "repair"),
    [
        (
            RUNNING._replace(deployments=[{"metadata": {"name": "antrea-controller"}, "spec": {"replicas": 2}}]),
            Right("patch", "coordination.k8s.io", "leases", "antrea-controller", "net"), CONTROLLER,
            "ServiceAccount net/antrea-controller lacks rights that controller.replicas=2 needs: patch leases.coordination.k8s.io antrea-controller",
            HELM.format("controller.replicas=2"),
        ),
        (
            RUNNING._replace(config={"antrea-controller.conf": "featureGates: {L7FlowExporter: true}"}),
            Right("watch", "batch", "cronjobs", "", ""), CONTROLLER,
            "ServiceAccount net/antrea-controller lacks rights that featureGates.L7FlowExporter=true needs: watch cronjobs.batch",
            "kubectl apply -f antrea-l7-flow-export-rights.yml",
        ),
        (
            RUNNING._replace(config={"antrea-agent.conf": "featureGates: {BGPPolicy: true}"}),
            Right("list", "", "secrets", "antrea-bgp-passwords", "net"), AGENT,
            "ServiceAccount net/antrea-agent lacks rights that featureGates.BGPPolicy=true needs: list secrets antrea-bgp-passwords",
            HELM.format("featureGates.BGPPolicy=true"),
        ),
        (
            RUNNING._replace(webhooks={"labelsmutator.antrea.io": {}}),
            Right("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "labelsmutator.antrea.io", ""), CONTROLLER,
            "ServiceAccount net/antrea-controller lacks rights that webhooks.labelsMutator.enable=true needs: patch mutatingwebhookconfigurations.admissionregistration.k8s.io labelsmutator.antrea.io",
            HELM.format("webhooks.labelsMutator.enable=true"),
        ),
        (
            INSTALLED,
            Right("watch", "", "services", "", ""), AGGREGATOR,
            "ServiceAccount flow-aggregator/flow-aggregator lacks rights that flowAggregator.enable=true needs: watch services",
            HELM.format("flowAggregator.enable=true"),
        ),
        (
            INSTALLED._replace(aggregator_config="apiServer: {authorizeUsers: true}"),
            Right("create", "authentication.k8s.io", "tokenreviews", "", ""), AGGREGATOR,
            ("ServiceAccount flow-aggregator/flow-aggregator lacks rights that flowAggregator.enable=true,"
             "flowAggregator.config.apiServer.authorizeUsers=true needs: create tokenreviews.authentication.k8s.io"),
            HELM.format("flowAggregator.enable=true,flowAggregator.config.apiServer.authorizeUsers=true"),
        ),
    ],
    ids=["replicas", "workloads", "bgp", "labels", "flow aggregator", "users of the flow aggregator"],
)  # fmt: skip
async def test_rights_that_values_of_the_chart_add_are_asked_for_where_they_are_in_use(
    state: ClusterState, right: Right, user: str, finding: str, repair: str
) -> None:
    assert right not in accounts(RUNNING).get(user, ())
    assert right in accounts(state)[user]
    denied = right.review(user)["spec"]["resourceAttributes"]
    (row,) = await found(Reviewer(user=user, **denied), state)
    assert (row.severity, row.finding, row.repair) == ("error", finding, repair)
    assert row.check == ("flow-aggregator-rights" if user == AGGREGATOR else "missing-rights")


@pytest.mark.parametrize(
    "text", ["", "- a", "apiServer: {authorizeUsers: 1}", "apiServer: [", "apiServer: 7"], ids=repr
)
def test_a_flow_aggregator_that_asks_about_no_users_needs_no_rights_to(text: str) -> None:
    rights = accounts(INSTALLED._replace(aggregator_config=text))
    assert Right("create", "authentication.k8s.io", "tokenreviews", "", "") not in rights[AGGREGATOR]


def test_a_flow_aggregator_whose_configuration_cannot_be_read_is_an_error() -> None:
    state = INSTALLED._replace(aggregator_config=None, unseen={"aggregator_config": "forbidden"})
    with pytest.raises(Failure, match="forbidden"):
        expected(state)


async def test_an_api_server_that_is_slow_is_asked_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("antrea.antctl.doctor.rights.SECONDS", 0.3)

    async def answer_late(_: web.BaseRequest) -> web.Response:
        await asyncio.sleep(0.2)
        return web.json_response({"status": {"allowed": True}}, status=201)

    async with answering(answer_late) as url:
        with pytest.raises(Failure, match=r"^2 of \d+ requests were answered within 0.3 s$"):
            await asyncio.to_thread(lambda: list(missing_rights(Server(Access(url=url), 10.0), RUNNING)))


async def test_a_right_that_is_denied_is_named_with_its_account() -> None:
    (row,) = await found(
        Reviewer(resource="egresses", subresource="status", user="system:serviceaccount:net:antrea-agent")
    )
    assert (row.node, row.severity, row.check, row.repair) == ("", "error", "missing-rights", RECONCILE)
    assert row.finding == "ServiceAccount net/antrea-agent lacks rights: patch egresses/status.crd.antrea.io"


async def test_rights_that_another_release_may_not_need_are_a_warning() -> None:
    other = RUNNING._replace(controller_info={"version": "v0.0.1"})
    row, _ = await found(Reviewer(verb="watch"), other)
    assert row.severity == "warning"
    assert " more; these are the rights of v" in row.finding


async def test_an_account_that_may_not_ask_is_an_error() -> None:
    async def forbid(_: web.BaseRequest) -> web.Response:
        return web.json_response(
            {"kind": "Status", "message": "cannot create subjectaccessreviews"}, status=403
        )

    async with answering(forbid) as url:
        with pytest.raises(Failure, match="cannot create subjectaccessreviews"):
            await asyncio.to_thread(lambda: list(missing_rights(Server(Access(url=url), 10.0), RUNNING)))


WHY = "antrea-agent.conf: tunnelType: 'x' is none; noSNAT: no"


async def waits(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as a program that waits for the correction, also behind the proxy of kube-apiserver: to anybody /readyz alone."""
    if request.path.endswith("/readyz"):
        handler = health("readyz", {"configuration": lambda: WHY})["/readyz"]
        return await handler(request)  # type: ignore[arg-type]
    return web.json_response({"kind": "Status", "message": "forbidden"}, status=403)


async def test_an_agent_that_waits_has_this_finding_alone() -> None:
    def nowhere(_: object) -> Server:
        raise Failure("no kubeconfig")

    async with answering(waits) as url:
        agent = Server(Access(url=url), 10.0)
        node = await asyncio.to_thread(gather, agent, nowhere, {"NODE_NAME": "n1", "POD_NAMESPACE": "net"})
    (row,) = findings(node)
    assert (row.node, row.severity, row.check) == ("n1", "error", "configuration")
    assert row.finding == f"the agent waits for the correction of its configuration, which was refused: {WHY}"
    assert row.repair == "kubectl -n net edit configmap antrea-config"


async def test_an_agent_that_hangs_is_waited_for_once() -> None:
    requests: list[str] = []

    async def hang(request: web.BaseRequest) -> web.Response:
        requests.append(request.path)
        await asyncio.sleep(60)
        raise AssertionError("the client waits longer than its limit")

    def nowhere(_: object) -> Server:
        raise Failure("no kubeconfig")

    async with answering(hang) as url:
        node = await asyncio.to_thread(gather, Server(Access(url=url), 0.2), nowhere, {"NODE_NAME": "n1"})
    assert (requests, node.refusal) == (["/config"], "")
    assert any(row.check == "agent" for row in findings(node))


async def test_a_program_without_this_check_does_not_wait() -> None:
    async def other(_: web.BaseRequest) -> web.Response:
        return web.json_response({}, status=404)

    async with answering(other) as url:
        assert await asyncio.to_thread(refusal, Server(Access(url=url), 10.0)) == ""


async def test_a_controller_that_waits_is_asked_through_kube_apiserver() -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "antrea-controller", "state": {"running": {}}}],
    }
    pod = {
        "metadata": {"name": "c", "namespace": "net", "labels": {"component": "antrea-controller"}},
        "spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "api", "containerPort": 10349}]}]},
        "status": status,
    }
    owner = {"metadata": {"name": "antrea-controller"}, "spec": {"replicas": 1}, "status": {}}
    state = RUNNING._replace(pods=[pod], deployments=[owner], config={"antrea-agent.conf": ""})
    async with answering(waits) as url:
        kubernetes = Server(Access(url=url), 10.0)
        refusals = await asyncio.to_thread(waiting_refusals, Collector(kubernetes), kubernetes, state)
    assert refusals == {"c": WHY}
    (row,) = (
        row for row in control_plane_findings(state._replace(refusals=refusals)) if row.check == "controller"
    )
    assert row.finding == f"Pod c waits for the correction of its configuration, which was refused: {WHY}"
    assert (row.node, row.repair) == ("n1", "kubectl -n net edit configmap antrea-config")

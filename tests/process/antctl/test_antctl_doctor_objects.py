"""What the doctor finds in the status of objects, a kind at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from loopback import answering

from antrea.antctl.doctor.objects import KINDS, MAX_FINDINGS, objects
from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import Server
from antrea.apis.service_address import ALLOCATED
from antrea.features.framework.doctor import SHOW_GATES
from antrea.outside.kube.access import Access


def one(name: str, spec: dict[str, Any] | None = None, **conditions: tuple[str, str, str]) -> dict[str, Any]:
    """An object with conditions, each as status, reason and message."""
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    return {"metadata": {"name": name}, "spec": spec or {}, "status": {"conditions": listed}}


async def found(
    listed: dict[str, list[dict[str, Any]] | int], gated: tuple[tuple[str, str], ...] = ()
) -> list[Finding]:
    """Of a cluster with these objects by check; a number is the answer's status, other kinds are not served."""
    by_path = {KINDS[check].path: rows for check, rows in listed.items()}

    async def answer(request: web.BaseRequest) -> web.Response:
        rows = by_path.get(request.path, 404)
        if isinstance(rows, int):
            return web.json_response({"kind": "Status", "message": "no"}, status=rows)
        return web.json_response({"items": rows})

    def ask(url: str) -> list[Finding]:
        return list(objects(Server(Access(url=url), 60.0), gated))

    async with answering(answer) as url:
        return await asyncio.to_thread(ask, url)


GOOD = ("True", "", "")
LISTS = {"externalIPPools": ["a", "b"]}


@pytest.mark.parametrize(
    ("check", "item", "severity", "finding"),
    [
        ("support-bundles", one("o", Started=GOOD, CollectionFailure=("False", "", ""), Completed=GOOD), "", ""),
        ("support-bundles", one("o", Started=("False", "Conflict", "another one")), "", ""),
        (
            "support-bundles",
            one("o", Started=GOOD, CollectionFailure=("True", "InternalError", "Failed Agent\nforged")),
            *("warning", "not all bundles are at the file server: Failed Agent\\nforged"),
        ),
        (
            "support-bundles",
            one("o", Started=("False", "SecretUnavailable", "no Secret")),
            *("warning", "cannot begin: no Secret"),
        ),
        ("egresses", one("o", IPAllocated=GOOD, IPAssigned=GOOD), "", ""),
        ("egresses", one("o"), "", ""),
        (
            "egresses",
            one("o", IPAllocated=("False", "AllocationError", "pool p is exhausted")),
            *("error", "its Pods get no packet out: pool p is exhausted"),
        ),
        (
            "egresses",
            one("o", LISTS, IPAllocated=GOOD, IPAssigned=("False", "AssignmentError", "")),
            *("warning", "lacks an address: AssignmentError"),
        ),
        (
            "egresses",
            one("o", AddressConflict=("True", "OtherHost", "02:00")),
            *("error", "another host has its address: 02:00"),
        ),
        (
            "egresses",
            one("o", GatewayAnswers=("False", "NoAnswer", "192.0.2.1")),
            *("warning", "the gateway of its pool is silent: 192.0.2.1"),
        ),
        (
            "egresses",
            one("o", BandwidthLimited=("False", "FeatureDisabled", "off")),
            *("warning", "its bandwidth is not limited: off"),
        ),
        (
            "egresses",
            one("o", ConnectionsSurvive=("False", "PodsWithoutPortBlock", "3 of 121 Pods")),
            *("warning", "not all connections outlive its gateway: 3 of 121 Pods"),
        ),
        ("service-external-ips", one("o"), "", ""),
        (
            "service-external-ips",
            one("o", {}, **{ALLOCATED: ("False", "AllocationError", "no pool p")}),
            *("error", "has no external IP: no pool p"),
        ),
        ("traceflows", {"metadata": {"name": "o"}, "status": {"phase": "Succeeded"}}, "", ""),
        ("traceflows", {"metadata": {"name": "o"}, "status": {"reason": "waits"}}, "", ""),
        (
            "traceflows",
            {"metadata": {"name": "o"}, "status": {"phase": "Failed", "reason": "timeout"}},
            *("warning", "failed: timeout"),
        ),
        ("captures", one("o", PacketCaptureStarted=GOOD, PacketCaptureComplete=("True", "Succeed", "")), "", ""),
        (
            "captures",
            one("o", PacketCaptureStarted=("False", "NotStarted", "16 captures run")),
            *("warning", "has not begun: 16 captures run"),
        ),
        (
            "captures",
            one("o", PacketCaptureStarted=GOOD, PacketCaptureComplete=("True", "Failed", "eth0 is gone")),
            *("warning", "ended early: eth0 is gone"),
        ),
        (
            "captures",
            one("o", PacketCaptureStarted=GOOD, PacketCaptureFileUploaded=("False", "Failed", "host key")),
            *("warning", "its file is not at the file server: host key"),
        ),
    ],
)  # fmt: skip
async def test_a_status_that_names_a_fault_is_a_finding(
    check: str, item: dict[str, Any], severity: str, finding: str
) -> None:
    kind = KINDS[check]
    describe = f"kubectl describe {kind.plural} o"
    wanted = [Finding("", severity, check, f"{kind.kind} o: {finding}", describe)] if finding else []
    assert await found({check: [item]}) == wanted


@pytest.mark.parametrize("check", ["traceflows", "captures", "support-bundles"])
async def test_what_nothing_has_read_leads_to_the_feature_gates(check: str) -> None:
    item = {"metadata": {"name": "o", "namespace": "shop"}}
    (row,) = await found({check: [item]})
    assert row.finding.startswith(f"{KINDS[check].kind} shop/o: nothing acts on it: ")
    assert (row.severity, row.repair) == ("warning", SHOW_GATES)


async def test_what_waits_for_a_gate_that_is_named_elsewhere_is_not_named_again() -> None:
    begun = one("begun", PacketCaptureStarted=("False", "NotStarted", "16 captures run"))
    listed: dict[str, list[dict[str, Any]] | int] = {"captures": [{"metadata": {"name": "unread"}}, begun]}
    assert len(await found(listed)) == 2
    (row,) = await found(listed, gated=(("PacketCapture", "unread"), ("PacketCapture", "begun")))
    assert row.finding == "PacketCapture begun: has not begun: 16 captures run"


async def test_an_object_of_a_namespace_is_described_there() -> None:
    item = one("web", {}, **{ALLOCATED: ("False", "", "no pool")})
    item["metadata"]["namespace"] = "shop"
    (row,) = await found({"service-external-ips": [item]})
    assert row.repair == "kubectl -n shop describe services web"


async def test_what_cannot_be_listed_is_a_finding_and_many_are_cut() -> None:
    (row,) = await found({"captures": 403})
    assert (row.severity, row.check) == ("error", "captures")
    many = await found(
        {"captures": [{"metadata": {"name": f"c{number}"}} for number in range(MAX_FINDINGS + 5)]}
    )
    assert len(many) == MAX_FINDINGS + 1
    assert many[-1].finding == f"there are more than {MAX_FINDINGS} of them"


async def test_an_interface_of_an_external_node_that_is_not_connected_is_an_error() -> None:
    def info(status: str) -> dict[str, Any]:
        return {
            "metadata": {"name": "vm1"},
            "nodeRef": {"kind": "ExternalNode", "namespace": "vms", "name": "vm1"},
            "agentConditions": [
                {"type": "AgentHealthy", "status": "True"},
                {
                    "type": "InterfaceNotConnected",
                    "status": status,
                    "message": "interface eth7 is not protected",
                },
            ],
        }

    assert await found({"external-nodes": [info("False")]}) == []
    (row,) = await found({"external-nodes": [info("True")]})
    assert (row.severity, row.check) == ("error", "external-nodes")
    assert row.finding == "AntreaAgentInfo vm1: interface eth7 is not protected"
    assert row.repair == "kubectl -n vms describe externalnodes vm1"

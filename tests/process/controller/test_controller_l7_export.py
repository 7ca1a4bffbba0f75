"""The annotation of the export of requests on a workload: the controller as it runs says that it has no effect there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, until
from controller_program import controller_program

from antrea.apis.annotation import L7_EXPORT
from antrea.features.l7_flow_export.workload import WORKLOADS
from antrea.outside.kube.client import METADATA, METADATA_LIST

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

TEMPLATES = {
    "Deployment": "spec.template", "ReplicaSet": "spec.template", "StatefulSet": "spec.template", "DaemonSet": "spec.template",
    "Job": "spec.template", "CronJob": "spec.jobTemplate.spec.template",
}  # fmt: skip


class WorkloadApi(ApiServer):
    """Notes what is asked of it about workloads."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, bool, str]] = set()
        """Path, whether it is a watch, and the type that is asked for."""
        super().__init__({})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith(("/apis/apps", "/apis/batch")):
            self.asked.add((request.path, "watch" in request.query, request.headers["Accept"]))
        return await super().serve(request)


def workload(api: ApiServer, path: str, name: str, value: str = "both", **meta: Any) -> None:
    place = path.rpartition("/")
    api.put(f"{place[0]}/namespaces/shop/{place[2]}/{name}", {
        "metadata": {"namespace": "shop", "uid": f"u-{name}", "annotations": {L7_EXPORT: value} if value else {}, **meta},
    })  # fmt: skip


def events(api: ApiServer) -> list[dict[str, Any]]:
    return [one for path, one in api.objects.items() if "/events/" in path]


async def test_an_annotated_workload_has_an_event_and_its_metadata_alone_is_read(tmp_path: Path) -> None:
    api = WorkloadApi()
    for kind in WORKLOADS:
        workload(api, kind.path(), kind.plural)
        workload(api, kind.path(), f"other-{kind.plural}", value="")
        workload(
            api, kind.path(), f"owned-{kind.plural}", ownerReferences=[{"kind": "x", "name": "x", "uid": "x"}]
        )
    async with controller_program(tmp_path, api, {"L7FlowExporter": True}):
        await until(lambda: len(events(api)) == len(WORKLOADS), 60)
        found = {one["involvedObject"]["kind"]: one for one in events(api)}
        assert set(found) == set(TEMPLATES)
        for name, place in TEMPLATES.items():
            one = found[name]
            about = one["involvedObject"]
            assert (about["namespace"], about["name"]) == ("shop", f"{name.lower()}s")
            assert about["apiVersion"] == ("batch/v1" if "Job" in name else "apps/v1")
            assert (one["type"], one["reason"]) == ("Warning", "L7ExportInvalid")
            assert f"no effect on a {name}" in one["message"]
            assert one["message"].endswith(f" {place}.metadata.annotations")
        workload(api, "/apis/apps/v1/deployments", "late", "<b>\n")
        await until(lambda: any(one["involvedObject"]["name"] == "late" for one in events(api)), 60)
        assert len(events(api)) == len(WORKLOADS) + 1
        wanted = {
            (kind.path(), way, METADATA if way else METADATA_LIST)
            for kind in WORKLOADS
            for way in (False, True)
        }
        assert api.asked == wanted


@pytest.mark.parametrize("gates", [{}, {"L7FlowExporter": False}])
async def test_without_the_gate_no_workload_is_read(tmp_path: Path, gates: dict[str, bool]) -> None:
    api = WorkloadApi()
    workload(api, "/apis/apps/v1/deployments", "web")
    async with controller_program(tmp_path, api, gates):
        await until(lambda: any("antreacontrollerinfos" in path for path in api.writes), 60)
    assert api.asked == set()
    assert not events(api)

"""The gate AntreaPolicy is turned off in the controller: what it wrote before does not go on to call policies realized."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from admission_object import crd, policy
from controller_process import ControllerProcess, controller_beside

from lab.process import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
POLICIES, GROUPS = (
    "/apis/crd.antrea.io/v1beta1/" + one for one in ("clusternetworkpolicies", "clustergroups")
)


def status(lab: Lab, collection: str) -> dict[str, Any]:
    found: dict[str, Any] = lab.api.get(f"{collection}/gate-off").get("status", {})
    return found


def conditions(lab: Lab, collection: str) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status(lab, collection).get("conditions", ())}


def test_a_gate_turned_off_takes_back_what_was_realized(empty_plane: Lab, tmp_path: Path) -> None:
    lab, group = (
        empty_plane,
        crd("ClusterGroup", "gate-off", {"podSelector": {"matchLabels": {"app": "web"}}}),
    )
    try:
        with controller_beside(lab, tmp_path):
            lab.api.apply(yaml.safe_dump_all([group, policy("gate-off", "application")]))
            wait_for(
                "Realized", lambda: status(lab, POLICIES).get("phase") == "Realized", seconds=60, step=0.1
            )
            wait_for(
                "members", lambda: conditions(lab, GROUPS) == {"GroupMembersComputed": "True"}, seconds=60
            )
        running = ControllerProcess(lab, tmp_path, featureGates={"AntreaPolicy": False})
        with contextlib.ExitStack() as stack:
            stack.callback(running.stop)
            wait_for(
                "no policies",
                lambda: conditions(lab, POLICIES) == {"Realizable": "False"},
                seconds=60,
                step=0.1,
            )
            wait_for(
                "no groups", lambda: conditions(lab, GROUPS) == {"GroupMembersComputed": "False"}, seconds=60
            )
            assert {name: status(lab, POLICIES)[name] for name in ("phase", "currentNodesRealized")} == {
                "phase": "Failed", "currentNodesRealized": 0,
            }  # fmt: skip
        with controller_beside(lab, tmp_path):
            wait_for(
                "Realized", lambda: status(lab, POLICIES).get("phase") == "Realized", seconds=60, step=0.1
            )
            wait_for(
                "members", lambda: conditions(lab, GROUPS) == {"GroupMembersComputed": "True"}, seconds=60
            )
    finally:
        lab.api.kubectl("delete", "--ignore-not-found", "acnp,cg", "gate-off")

"""ExternalNodes in the controller as it runs: with the gate their ExternalEntities and AntreaAgentInfos come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, until
from controller_program import controller_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NODES = "/apis/crd.antrea.io/v1alpha1/namespaces/vms/externalnodes"
ENTITIES = "/apis/crd.antrea.io/v1alpha2/namespaces/vms/externalentities"
INFOS = "/apis/crd.antrea.io/v1beta1/antreaagentinfos"


def machine(ip: str, **labels: str) -> dict[str, Any]:
    meta = {"namespace": "vms", "uid": "u1", "labels": labels}
    return {"metadata": meta, "spec": {"interfaces": [{"ips": [ip]}]}}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """The API server of a controller that has the gate."""
    found = ApiServer({f"{NODES}/vm1": machine("192.0.2.7", role="db")})
    async with controller_program(tmp_path, found, {"ExternalNode": True}):
        yield found


def endpoints(api: ApiServer) -> Any:
    return api.objects.get(f"{ENTITIES}/vm1", {}).get("spec", {}).get("endpoints")


async def test_external_entities_and_agent_infos_follow_the_external_nodes(api: ApiServer) -> None:
    await until(lambda: endpoints(api) == [{"ip": "192.0.2.7"}], 60)
    await until(lambda: f"{INFOS}/vm1" in api.objects, 60)
    api.put(f"{NODES}/vm1", machine("fd00::7", role="web"))
    await until(lambda: endpoints(api) == [{"ip": "fd00::7"}], 60)
    assert api.objects[f"{ENTITIES}/vm1"]["metadata"]["labels"] == {"role": "web"}
    api.drop(f"{NODES}/vm1")
    await until(lambda: f"{ENTITIES}/vm1" not in api.objects and f"{INFOS}/vm1" not in api.objects, 60)


async def test_two_external_nodes_of_one_name_are_kept_apart_and_share_an_agent_info(api: ApiServer) -> None:
    other = {
        "metadata": {"namespace": "others", "uid": "u2"},
        "spec": {"interfaces": [{"ips": ["192.0.2.8"]}]},
    }
    api.put(f"{NODES.replace('vms', 'others')}/vm1", other)
    theirs = f"{ENTITIES.replace('vms', 'others')}/vm1"
    await until(lambda: endpoints(api) == [{"ip": "192.0.2.7"}] and theirs in api.objects, 60)
    assert api.objects[theirs]["spec"] == {"endpoints": [{"ip": "192.0.2.8"}], "externalNode": "vm1"}
    await until(lambda: f"{INFOS}/vm1" in api.objects, 60)
    api.drop(f"{NODES}/vm1")
    await until(lambda: f"{ENTITIES}/vm1" not in api.objects, 60)
    assert theirs in api.objects
    assert f"{INFOS}/vm1" in api.objects


async def test_an_interface_that_gets_another_name_is_never_without_an_external_entity(
    api: ApiServer,
) -> None:
    await until(lambda: endpoints(api) == [{"ip": "192.0.2.7"}], 60)
    named = machine("192.0.2.7")
    named["spec"]["interfaces"][0]["name"] = "eth0"
    api.writes.clear()
    api.put(f"{NODES}/vm1", named)
    await until(lambda: f"{ENTITIES}/vm1" not in api.objects, 60)
    written = [path for path in api.writes if path.startswith(ENTITIES)]
    assert written == [ENTITIES, f"{ENTITIES}/vm1"]  # created, then deleted
    assert f"{ENTITIES}/vm1-3e616" in api.objects

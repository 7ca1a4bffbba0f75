"""SupportBundleCollection of a machine outside the cluster: its agent sends a bundle to a real file server."""

from __future__ import annotations

import tarfile
import time
from typing import TYPE_CHECKING

import pytest
from certificate_world import ApiServer
from machine_process import NODE, NODES, SPACE, external_node, machine
from sftp_server import secret, sftp_server

from antrea.apis.annotation import ACCEPT_ANY_HOST_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

COLLECTION = "/apis/crd.antrea.io/v1alpha1/supportbundlecollections/one"
SECRET = "/api/v1/namespaces/ops/secrets/file-server"


@pytest.mark.wide
async def test_a_bundle_of_a_machine_arrives_at_the_file_server(netns: Namespaces, tmp_path: Path) -> None:
    api = ApiServer({SECRET: secret()})
    async with (
        machine(netns, tmp_path, api, gates=("SupportBundleCollection",)) as one,
        sftp_server(tmp_path / "files") as server,
    ):
        api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        reference = {"name": "file-server", "namespace": "ops"}
        api.put(
            COLLECTION,
            {
                "metadata": {
                    "uid": "c1",
                    "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "annotations": {ACCEPT_ANY_HOST_KEY: "true"},
                },
                "spec": {
                    "externalNodes": {"namespace": SPACE, "nodeSelector": {"matchLabels": {"role": "vm"}}},
                    "fileServer": {"url": server.url()},
                    "authentication": {"authType": "BasicAuthentication", "authSecret": reference},
                },
            },
        )

        def conditions() -> list[str]:
            return [
                found["status"] for found in api.objects[COLLECTION].get("status", {}).get("conditions", [])
            ]

        await one.until(lambda: conditions() == ["True", "True", "False", "True"], "the bundle is collected")
        with tarfile.open(tmp_path / "files/upload" / f"{NODE}_one.tar.gz") as archive:
            assert {"flows", "agentinfo", "route", "bundleinfo"} <= {*archive.getnames()}

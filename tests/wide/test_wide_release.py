"""Programs of the images of arm64 start under QEMU's user emulation: of agents and the controller, and of the flow aggregator with its store."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from controller_program import kubeconfig
from loopback import answering

from antrea import VERSION
from image_build import oci
from image_build.platform import ARM64, emulated

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
EMULATOR = "qemu-aarch64-static"
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
VERSION_OF_CNI = {"CNI_COMMAND": "VERSION", "CNI_PATH": "/usr/lib/cni"}
pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(os.geteuid() != 0, reason="an image needs root"),
    pytest.mark.skipif(not shutil.which(EMULATOR), reason="needs apt-get install qemu-user-static"),
]


def unpacked(root: Path, *options: str) -> Path:
    """Build an image of arm64 with these options of build/image.py, and unpack it in the folder."""
    command = [
        sys.executable,
        str(ROOT / "build/image.py"),
        "--architecture",
        "arm64",
        "--describe",
        *options,
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    for layer in oci.decode(done.stdout).layers:
        with tarfile.open(layer.path) as tar:
            tar.extractall(root, filter="fully_trusted")
    return root


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root directory of the image of agents and the controller."""
    return unpacked(tmp_path_factory.mktemp("arm64"))


@pytest.fixture(scope="module")
def aggregator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root directory of the image of the flow aggregator with its store."""
    return unpacked(tmp_path_factory.mktemp("aggregator"), "--flow-aggregator")


def inside(root: Path, words: Sequence[str]) -> list[str]:
    """What runs a command in namespaces of its own, where it is the end of all that it starts."""
    own = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    mounts = 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" "$@"'
    return [*own, *emulated(ARM64, ("sh", "-c", mounts, str(root), *words))]


def run(root: Path, *words: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        inside(root, words),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=ENVIRONMENT | (environment or {}),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_programs_of_the_image_of_arm64_run(arm64: Path) -> None:
    assert run(arm64, "uname", "-m") == "aarch64\n"
    engine = "from antrea.engine.core import IMPLEMENTATION; print(IMPLEMENTATION)"
    assert run(arm64, "python3", "-P", "-c", engine) == "compiled\n"
    assert "cniVersion" in json.loads(run(arm64, "/usr/lib/cni/antrea", environment=VERSION_OF_CNI))
    for program in ("antrea-agent", "antrea-controller", "antrea-flow-aggregator"):
        assert "--config" in run(arm64, program, "--help")
    assert run(arm64, "ip", "-V")


SWITCH = """
set -e
mkdir -p /var/run/openvswitch /var/log/openvswitch
ovsdb-tool create /tmp/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /tmp/conf.db --remote=punix:/var/run/openvswitch/db.sock --pidfile --detach --log-file --no-chdir
ovs-vsctl --no-wait init
ovs-vswitchd --enable-dummy=override --disable-system --pidfile --detach --log-file --no-chdir
ovs-vsctl --timeout=120 add-br br-int -- set bridge br-int datapath_type=dummy protocols=OpenFlow15
ovs-ofctl -O OpenFlow15 add-flow br-int 'table=3,priority=7,ip,nw_dst=10.0.0.1 actions=drop'
ovs-ofctl -O OpenFlow15 dump-flows br-int
"""


def test_the_switch_of_the_image_of_arm64_takes_flows(arm64: Path) -> None:
    assert "table=3" in run(arm64, "sh", "-c", SWITCH)


async def test_antctl_of_the_image_of_arm64_asks_the_api_server(arm64: Path) -> None:
    asked: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.json_response({"kind": "Status", "code": 503}, status=503)

    async with answering(serve) as server:
        kubeconfig(arm64 / "tmp/kubeconfig", server)
        command = inside(arm64, ("antctl", "-k", "/tmp/kubeconfig", "version"))
        program = await asyncio.create_subprocess_exec(*command, env=ENVIRONMENT)
        async with asyncio.timeout(600):
            await program.wait()
    assert asked
    assert all(request.startswith("GET /api") for request in asked), asked


def test_the_controller_of_the_image_of_arm64_starts_with_the_compiled_engine(arm64: Path) -> None:
    """Under emulation its second process is not there within its limit, so that it gives up after that."""
    kubeconfig(arm64 / "tmp/kubeconfig", "http://127.0.0.1:1")
    config = arm64 / "tmp/antrea-controller.conf"
    config.write_text(json.dumps({"clientConnection": {"kubeconfig": "/tmp/kubeconfig"}}))
    words = ["antrea-controller", "--config", "/tmp/antrea-controller.conf"]
    words += ["--certificate-dir", "/tmp/certificates", "--token-file", "/tmp/token"]
    with subprocess.Popen(
        inside(arm64, words), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        first = program.stderr.readline()
        program.kill()
    assert f'"Starting antrea-controller" version="{VERSION}" engine="compiled"' in first


STORE = """
import asyncio, platform
from pathlib import Path
from antrea.apis.flow import FlowRecord
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    store = EmbeddedClickHouse(Path("/tmp/store"))
    await ClickHouseOutput(store, "168h").write([FlowRecord(source_transport_port=port) for port in range(500)])
    counted = await store.run("SELECT count(), sum(sourceTransportPort) FROM flows")
    print(platform.machine(), counted.decode().split())
    await store.close()

asyncio.run(main())
"""


def test_the_store_of_the_flow_aggregator_of_arm64_keeps_records(aggregator: Path) -> None:
    assert "--config" in run(aggregator, "antrea-flow-aggregator", "--help")
    told = run(aggregator, "python3", "-P", "-c", STORE)
    assert told == f"aarch64 ['500', '{sum(range(500))}']\n"

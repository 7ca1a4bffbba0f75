"""antctl supportbundle against servers on loopback, in a Pod and from a workstation."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import tempfile
from typing import TYPE_CHECKING

import pytest
from bundle_cluster import PLANTED, TOKEN, bundle_cluster
from click.testing import CliRunner

from antrea.antctl import mode
from antrea.antctl.main import antctl
from antrea.antctl.request import Server
from antrea.antctl.supportbundle.progress import Bar
from antrea.antctl.supportbundle.remote import Collection, Wanted, programs
from antrea.outside.kube.kubeconfig import kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bundle_cluster import Cluster
    from click.testing import Result


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    async with bundle_cluster(tmp_path) as made:
        yield made


async def remote(cluster: Cluster, *words: str) -> Result:
    """Beside the servers' loop."""
    command = ["-k", str(cluster.kubeconfig), "supportbundle", *words]
    return await asyncio.to_thread(CliRunner().invoke, antctl(mode.REMOTE), command, prog_name="antctl")


def files(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {e.name: archive.extractfile(e).read().decode() for e in archive}  # type: ignore[union-attr]


async def test_antctl_supportbundle_saves_what_it_can_and_names_who_failed(
    cluster: Cluster, tmp_path: Path
) -> None:
    result = await remote(cluster, "-d", "out")
    out = tmp_path / "out"
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "Failed nodes: "
    assert lines[1].startswith(
        "- worker-2: request to server failed: https://127.0.0.1:1/apis/system.antrea.io/"
    )
    assert lines[2:] == [
        "- worker-3: Node worker-3 has no AntreaAgentInfo: does an agent run there?",
        f"Saved 3 of 5 support bundles under {out}",
    ]
    assert sorted(path.name for path in out.iterdir()) == [
        *("agent_master.tar.gz", "agent_worker-1.tar.gz", "agent_worker-2.tar.gz"),
        *("clusterinfo", "controller.tar.gz", "failed_nodes"),
    ]
    assert (out / "failed_nodes").read_text() == "worker-2\nworker-3\n"
    assert "podinterfaces" in files(out / "agent_master.tar.gz")
    assert files(out / "controller.tar.gz")["controllerinfo"] == "version: v1\n"
    assert files(out / "agent_worker-2.tar.gz").keys() == {
        *("agentinfo", "logs/install-cni/install-cni.log", "logs/agent/antrea-agent.log"),
    }
    assert {path.stat().st_mode & 0o777 for path in (out, *out.iterdir())} == {0o700, 0o600}
    # agents say themselves where they are, so they are never shown who the user is
    assert cluster.credentials == {TOKEN, "anna"}
    assert sum(path.endswith("/antctl/token") for _, path in cluster.asked) == 1


async def test_antctl_supportbundle_writes_what_only_its_user_can_read_also_in_a_directory_of_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    for name in ("clusterinfo", "failed_nodes", "controller.tar.gz"):
        (out / name).touch(mode=0o644)
    assert (await remote(cluster, "-d", "out")).exit_code == 0
    assert {path.name: path.stat().st_mode & 0o777 for path in out.iterdir()} == dict.fromkeys(
        (
            *("agent_master.tar.gz", "agent_worker-1.tar.gz", "agent_worker-2.tar.gz"),
            *("clusterinfo", "controller.tar.gz", "failed_nodes"),
        ),
        0o600,
    )


async def test_antctl_supportbundle_takes_secrets_out_of_what_the_api_server_tells(
    cluster: Cluster, tmp_path: Path
) -> None:
    await remote(cluster, "-d", "out", "worker-2")
    info = (tmp_path / "out/clusterinfo").read_text()
    for title in ("pods", "nodes", "deployments", "replicas", "daemonsets", "configs"):
        assert f"#{title}\n" in info
    assert "name: worker-3" in info, "the second page of Nodes"
    assert "value: '4'" in info
    assert "apiToken: <redacted>" in info
    logs = files(tmp_path / "out/agent_worker-2.tar.gz")["logs/agent/antrea-agent.log"]
    assert logs == 'I1 x] "Login" password="<redacted>" user="anna"\n'
    assert PLANTED not in info


@pytest.mark.parametrize(
    ("words", "saved"),
    [
        (("--controller-only",), {"controller"}),
        (("worker-1",), {"agent_worker-1"}),
        (("worker-1", "master", "absent"), {"agent_worker-1", "agent_master"}),
        (("*er-1",), {"agent_worker-1"}),
        (("-f", "names"), {"agent_master"}),
        (("-l", "zone=a"), {"agent_master", "agent_worker-1"}),
        (("*worker*", "-l", "zone=a", "--since", "1h"), {"agent_worker-1"}),
    ],
)
async def test_antctl_supportbundle_asks_those_that_are_meant(
    cluster: Cluster, tmp_path: Path, words: tuple[str, ...], saved: set[str]
) -> None:
    (tmp_path / "names").write_text("master\n\n")
    result = await remote(cluster, *words)
    assert result.exit_code == 0, result.output
    (out,) = (tmp_path / name for name in os.listdir(tmp_path) if name.startswith("support-bundles_"))  # noqa: PTH208
    assert {path.name.removesuffix(".tar.gz") for path in out.iterdir()} == {*saved, "clusterinfo"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nothing*",), "no matched Nodes found to collect agent bundles"),
        (("-f", "absent"), "error when opening node-list-file"),
        (("--since", "soon"), 'invalid argument "soon" for "--since" flag'),
        (("worker-3",), "no data was collected: Node worker-3 has no AntreaAgentInfo"),
    ],
)
async def test_antctl_supportbundle_without_any_bundle_fails(
    cluster: Cluster, words: tuple[str, ...], why: str
) -> None:
    result = await remote(cluster, *words)
    assert (result.exit_code, why in result.stderr) == (1, True), result.output


async def test_antctl_supportbundle_says_what_the_cluster_would_not_tell(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.away = {"/api/v1/pods", "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller"}
    result = await remote(cluster, "-d", "out")
    assert result.exit_code == 0
    assert "clusterinfo is not complete: pods: request to server failed: etcd is away\n" in result.stderr
    assert "Controller Info Failed Reason: request to server failed: etcd is away\n" in result.stdout
    assert "Failed to download controller bundle from kubernetes api: " in result.stdout
    assert "name: worker-3" in (tmp_path / "out/clusterinfo").read_text()


async def test_antctl_supportbundle_in_a_pod_says_where_it_is_how_it_is_fetched_and_how_long(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "antrea-agent-x")
    monkeypatch.setenv("POD_NAMESPACE", "net")
    (tmp_path / "tmp/bundle_of-another.tar.gz").touch()
    port = cluster.lists["/apis/crd.antrea.io/v1beta1/antreaagentinfos"][0]["apiPort"]
    words = ["-s", f"127.0.0.1:{port}", "--token-file", str(tmp_path / "token-1"), "supportbundle"]
    result = await asyncio.to_thread(CliRunner().invoke, antctl(mode.AGENT), words, prog_name="antctl")
    first, second, third = result.stdout.splitlines()
    (tmp_path / "tmp/bundle_of-another.tar.gz").unlink()
    (made,) = (tmp_path / "tmp").glob("bundle_*.tar.gz")
    assert first == f"Created bundle under {tempfile.gettempdir()}"
    copy = f"kubectl cp -n net -c antrea-agent antrea-agent-x:{made} {made.name}"
    assert second == f"Fetch it with: {copy}"
    assert third.startswith("Expire time: 2")
    assert third.endswith(" +0000 UTC")
    assert "agentinfo" in files(made)


async def test_antctl_supportbundle_that_is_interrupted_waits_for_nobody(
    cluster: Cluster, tmp_path: Path
) -> None:
    access = kubeconfig(cluster.kubeconfig)
    wanted = Wanted(tmp_path, ("worker-1",), "", "", controller_only=False, since="", insecure=False)
    asked = await asyncio.to_thread(programs, Server(access, 10), wanted)
    collection = Collection(asked, wanted)
    collection.end()
    await asyncio.to_thread(collection.run)
    assert collection.failed == {"worker-1": "interrupted"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_antctl_supportbundle_shows_progress_on_a_terminal_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        bar = Bar(4, out)
        bar.show("Requesting")
        bar.step()
        bar.show("Downloading")
        for _ in range(3):
            bar.step()
        bar.end()
    shown = terminal.getvalue().split("\r\x1b[K")
    assert shown[1] == f"Requesting[>{'_' * 39}] 0.00%"
    assert shown[3].startswith(f"Downloading[{'-' * 10}>{'_' * 29}] 25.00% ETA ")
    assert shown[-1] == f"Finish [{'-' * 40}] 100.00%\n"
    assert file.getvalue() == ""

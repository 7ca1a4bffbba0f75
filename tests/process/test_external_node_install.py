"""The script that installs the agent on a machine outside the cluster: what it writes works, and what it refuses."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.features.external_node.agent_part.part import FILE
from antrea.features.framework.config_validation import accept_agent

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).parents[2] / "build/external-node"


def install(root: Path, *more: str, files: bool = True) -> subprocess.CompletedProcess[str]:
    given: Sequence[str] = ()
    if files:
        for name in ("kube", "antrea"):
            (root / name).write_text("{}")
        given = ("--kubeconfig", f"{root}/kube", "--antrea-kubeconfig", f"{root}/antrea")
        given = (*given, "--config", str(FOLDER / "antrea-agent.conf"), "--agent", "/usr/bin/antrea-agent")
    words = [str(FOLDER / "install.sh"), "--root", str(root), *given, *more]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_what_is_installed_is_accepted_by_the_agent(tmp_path: Path) -> None:
    done = install(tmp_path, "--ns", "machines", "--nodename", "db-1")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "etc/antrea/antrea-agent.conf"
    loaded = parse(AgentConfig, file.read_text())
    assert loaded.unknown == ()
    assert loaded.config.external_node.external_node_namespace == "machines"
    assert accept_agent(loaded.config).names == {"AntreaPolicy", "ExternalNode", "NetworkPolicyStats"}
    for path in (loaded.config.client_connection, loaded.config.antrea_client_connection):
        assert stat.S_IMODE((tmp_path / path.kubeconfig.removeprefix("/")).stat().st_mode) == 0o600
    unit = (tmp_path / "etc/systemd/system/antrea-agent.service").read_text()
    assert "Environment=NODE_NAME=db-1\n" in unit
    assert "ExecStart=/usr/bin/antrea-agent --config=/etc/antrea/antrea-agent.conf\n" in unit
    guard = (tmp_path / "etc/systemd/system/antrea-boot-guard.service").read_text()
    assert f"ConditionPathExists={FILE}\n" in guard
    assert f"ExecStart=nft -f {FILE}\n" in guard
    assert "Before=network-pre.target" in guard
    assert install(tmp_path, "--uninstall", files=False).returncode == 0
    assert not [*(tmp_path / "etc/systemd/system").iterdir()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodename", "a b; reboot"), "is no name of a Kubernetes object"),
        (("--ns",), "--ns needs a value"),
        (("--config", "/nowhere"), "name files"),
        (("--what",), "unknown option --what"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = install(tmp_path, *words)
    assert (done.returncode, said in done.stderr) == (2, True)
    assert not (tmp_path / "etc").exists()


def test_the_rights_are_those_that_the_agent_needs() -> None:
    rights = {
        (resource, verb)
        for one in yaml.safe_load_all((FOLDER / "rbac.yml").read_text())
        for rule in one.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        ("antreaagentinfos", "get"), ("antreaagentinfos", "patch"), ("externalnodes", "list"), ("externalnodes", "watch"),
        ("networkpolicies", "watch"), ("addressgroups", "watch"), ("appliedtogroups", "watch"),
        ("networkpolicies/status", "create"), ("nodestatssummaries", "create"), ("events", "create"),
    }  # fmt: skip
    assert needed <= rights
    assert not any(resource in ("secrets", "pods", "nodes") for resource, _ in rights)

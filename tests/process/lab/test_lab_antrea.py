"""Our manifest on a lab: the ConfigMap's overrides and the development mode, on objects of upstream's shape."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from lab.antrea import AGAIN, manifest
from lab.cluster import Lab
from lab.record import Record
from lab.settings import Settings

TEXT = """
apiVersion: v1
kind: ConfigMap
metadata: {name: antrea-config, namespace: kube-system}
data:
  antrea-agent.conf: |
    featureGates: {AntreaProxy: true}
    tunnelType: geneve
  antrea-controller.conf: |
    apiPort: 10349
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: antrea-agent}
spec:
  template:
    spec:
      containers:
      - {name: antrea-agent, command: [antrea-agent, --config=/etc/antrea/antrea-agent.conf]}
      - {name: antrea-ovs, command: [start_ovs]}
"""


def applied(settings: Settings) -> list[dict[str, object]]:
    lab = Lab(Record("unit"), settings, Path("kubectl"))
    return list(yaml.safe_load_all(manifest(lab, TEXT)))


def test_the_lab_sets_its_datapath_and_card_and_the_settings_win() -> None:
    agent = {"tunnelType": "vxlan", "featureGates": {"Egress": False}}
    config, _ = applied(Settings(agent=agent))
    data = config["data"]
    assert isinstance(data, dict)

    assert {key: yaml.safe_load(text) for key, text in data.items()} == {
        "antrea-agent.conf": {
            "featureGates": {"AntreaProxy": True, "Egress": False},
            "tunnelType": "vxlan",
            "ovsDatapathType": "netdev",
            "transportInterface": "eth1",
        },
        "antrea-controller.conf": {"apiPort": 10349},
    }


def test_without_kube_proxy_both_programs_are_told_where_the_api_server_is() -> None:
    config, _ = applied(Settings(kube_proxy="none", family="ipv6"))
    data = config["data"]
    assert isinstance(data, dict)

    assert {yaml.safe_load(text)["kubeAPIServerOverride"] for text in data.values()} == {
        "https://[fd00:172:30::2]:6443"
    }


def test_proxy_all_has_antrea_proxy_serve_nodes_too() -> None:
    settings = Settings(kube_proxy="none", proxy_all=True)
    config, _ = applied(settings)
    data = config["data"]
    assert isinstance(data, dict)

    agent = yaml.safe_load(data["antrea-agent.conf"])
    assert agent["antreaProxy"] == {"proxyAll": True}
    assert settings.serves_cluster_ips


@pytest.mark.parametrize(
    ("settings", "nodes", "pods"),
    [
        (Settings(), True, True),
        (Settings(kube_proxy="none"), False, True),
        (Settings(kube_proxy="none", agent={"antreaProxy": {"enable": False}}), False, False),
        (Settings(kube_proxy="none", agent={"featureGates": {"AntreaProxy": False}}), False, False),
        (Settings(kube_proxy="none", cni="reference"), False, False),
    ],
)
def test_who_is_served_by_somebody(settings: Settings, nodes: bool, pods: bool) -> None:
    assert (settings.serves_cluster_ips, settings.serves_pods) == (nodes, pods)


def test_development_runs_our_program_from_the_source_in_a_loop_and_leaves_the_other_container_alone() -> (
    None
):
    _, daemon_set = applied(Settings(dev=True))

    source = {"name": "lab-source", "hostPath": {"path": "/opt/antrea-source", "type": "Directory"}}
    assert daemon_set["spec"] == {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "antrea-agent",
                        "command": [
                            *("sh", "-c", AGAIN, "lab-dev"),
                            *("antrea-agent", "--config=/etc/antrea/antrea-agent.conf"),
                        ],
                        "env": [{"name": "PYTHONPATH", "value": "/opt/antrea-source"}],
                        "volumeMounts": [
                            {"name": "lab-source", "mountPath": "/opt/antrea-source", "readOnly": True}
                        ],
                    },
                    {"name": "antrea-ovs", "command": ["start_ovs"]},
                ],
                "volumes": [source],
            }
        }
    }


def test_the_loop_starts_an_ended_program_again_and_ends_with_it_on_a_signal(tmp_path: Path) -> None:
    """The program notes each start; at the third it asks for the end of the loop."""
    starts = tmp_path / "starts"
    program = f"echo x >> {starts}; [ $(wc -l < {starts}) -lt 3 ] || {{ kill $PPID; exec sleep 60; }}"
    done = subprocess.run(["sh", "-c", AGAIN, "lab-dev", "sh", "-c", program], timeout=60, check=False)

    assert (starts.read_text(), done.returncode) == ("x\n" * 3, 128 + signal.SIGTERM)

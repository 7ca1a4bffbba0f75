"""What a take-over from kube-proxy plans, and how it edits a configuration and an affinity."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from antrea.antctl.config_owner import ConfigOwner, config_owner
from antrea.antctl.kube_proxy.cluster import report_of
from antrea.antctl.kube_proxy.config_edit import value_of, with_value
from antrea.antctl.kube_proxy.plan import ClusterView, NodeView, blockers, changes, chart_values
from antrea.antctl.kube_proxy.takeover import KEPT, only_labelled
from antrea.errors import Invalid

CONF = """# Generated
featureGates:
#  AntreaProxy: true
# where kube-apiserver is
kubeAPIServerOverride: ""
antreaProxy:
  # serve all
  proxyAll: false
  skipServices: []
logVerbosity: 0
"""
TOLD = {
    "runs": True, "tables": [], "chains": 12, "held": [], "legacy": [], "ipvs": False, "proxyAll": False, "trouble": "",
}  # fmt: skip
DAEMON_SET = {"metadata": {"name": "kube-proxy"}, "spec": {"template": {"spec": {}}}}
VIEW = ClusterView(
    daemon_set=DAEMON_SET,
    proxy_config={"mode": "nftables"},
    files={"antrea-agent.conf": CONF, "antrea-controller.conf": ""},
    api_server="https://192.0.2.10:6443",
    endpoints=("192.0.2.1:6443",),
    nodes=(NodeView("n1", TOLD),),
)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        (CONF, "antreaProxy.proxyAll", True),
        (CONF, "kubeAPIServerOverride", "https://[2001:db8::1]:6443"),
        (CONF, "antreaProxy.enable", True),
        ("", "antreaProxy.proxyAll", True),
        ("logVerbosity: 0", "kubeAPIServerOverride", "h"),
        ("antreaProxy: {enable: true}\n", "antreaProxy.proxyAll", True),
        ("antreaProxy:\n    enable: true\n", "antreaProxy.proxyAll", True),
        ("a:\n  proxyAll: 1\nantreaProxy:\n", "antreaProxy.proxyAll", True),
    ],
)
def test_one_value_changes_and_all_others_stay(text: str, path: str, value: str | bool) -> None:
    edited = with_value(text, path, value)
    assert value_of(edited, path) == value
    tree, before = yaml.safe_load(edited), yaml.safe_load(text) or {}
    section, _, key = path.rpartition(".")
    place = tree[section] if section else tree
    assert {k: v for k, v in tree.items() if k != (section or key)} == {
        k: v for k, v in before.items() if k != (section or key)
    }
    assert {k: v for k, v in place.items() if k != key} == {
        k: v for k, v in ((before.get(section) or {}) if section else before).items() if k != key
    }


def test_comments_stay_where_the_form_allows() -> None:
    edited = with_value(CONF, "antreaProxy.proxyAll", True)
    assert edited == CONF.replace("proxyAll: false", "proxyAll: true")
    assert with_value(edited, "antreaProxy.proxyAll", False) == CONF


def test_a_plan_names_every_change_in_order() -> None:
    assert list(blockers(VIEW)) == []
    assert [line.partition(":")[0] for line in changes(VIEW)] == [
        "ConfigMap antrea-config, antrea-agent.conf",
        "ConfigMap antrea-config, antrea-agent.conf",
        "ConfigMap antrea-config, antrea-controller.conf",
        "DaemonSet kube-system/kube-proxy",
        "Node n1",
    ]
    last = list(changes(VIEW))[-1]
    assert last.endswith("; 12 chains of kube-proxy and the rules that lead to them go")
    addresses = VIEW._replace(proxy_config={"mode": "iptables", "nodePortAddresses": ["192.0.2.0/24"]})
    assert "this command leaves it" in list(changes(addresses))[-1]


def test_a_plan_counts_what_mode_ipvs_has_and_tells_what_connections_do() -> None:
    told = TOLD | {"ipvs": True, "ipvsAddresses": 9, "virtualServers": 12, "ipSets": 17}
    view = VIEW._replace(proxy_config={"mode": "ipvs"}, nodes=(NodeView("n1", told),))
    assert list(blockers(view)) == []
    last = list(changes(view))[-1]
    assert "kube-ipvs0 goes, with 9 addresses of Services; 12 virtual servers of IPVS are removed" in last
    assert "connections through them pause for a moment and continue; 17 ipsets" in last


def test_a_plan_names_settings_of_the_kernel_that_stay() -> None:
    assert not any("strictARP" in line for line in changes(VIEW._replace(proxy_config={"mode": "ipvs"})))
    view = VIEW._replace(proxy_config={"mode": "ipvs", "ipvs": {"strictARP": True}})
    assert "arp_ignore to 1 and arp_announce to 2" in list(changes(view))[-1]


def test_what_a_kube_proxy_deleted_by_hand_has_left_is_planned_and_its_mode_is_not_guessed() -> None:
    node = NodeView("n1", TOLD | {"runs": False, "proxyAll": True})
    view = VIEW._replace(daemon_set=None, proxy_config={}, nodes=(node,))
    assert list(blockers(view)) == []
    assert view.mode == "unknown"
    found = list(changes(view))
    assert found[-1] == "Node n1: 12 chains of kube-proxy and the rules that lead to them go"
    (note,) = [line for line in found if "DaemonSet" in line]
    assert note.startswith("Note: kube-proxy has no DaemonSet and runs on no Node")
    assert "--rollback" in note


def test_a_kube_proxy_within_another_program_is_in_the_way() -> None:
    """As in k3s: no process of that name, but its port of metrics; it would make its rules again."""
    node = NodeView("n1", TOLD | {"runs": False, "listening": [["TCP", "127.0.0.1", 10249]]})
    (line,) = blockers(VIEW._replace(daemon_set=None, proxy_config={}, nodes=(node,)))
    assert line.startswith("Node n1: a program listens at port 10249 of TCP, as kube-proxy does")
    assert "k3s" in line
    assert list(blockers(VIEW._replace(nodes=(node,)))) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"daemon_set": None}, "and kube-proxy runs: stop what starts it"),
        ({"proxy_config": {"mode": "kernelspace"}}, "runs in mode kernelspace"),
        ({"api_server": ""}, "endpoints: 192.0.2.1:6443"),
        ({"files": {"antrea-agent.conf": "antreaProxy: {enable: false}"}}, "AntreaProxy is off"),
        ({"files": {"antrea-agent.conf": "tunnelType: none"}}, "antrea-agent.conf is refused: "),
        ({"nodes": (NodeView("n1", {}, "no agent"),)}, "Node n1: no agent"),
        ({"nodes": (NodeView("n1", TOLD | {"legacy": ["ip nat"]}),)}, "iptables-legacy (ip nat)"),
        ({"nodes": (NodeView("n1", TOLD | {"held": ["ip nat A -> B"]}),)}, "another program lead to"),
    ],
)
def test_what_is_in_the_way_is_said_before_anything_changes(change: dict[str, Any], word: str) -> None:
    (line,) = blockers(VIEW._replace(**change))
    assert word in line


@pytest.mark.parametrize(
    ("change", "free", "serves"),
    [
        ({}, False, "antreaProxy.proxyAll is not in effect"),
        ({"runs": False, "chains": 0, "proxyAll": True}, True, ""),
        ({"runs": False, "chains": 0, "proxyAll": True, "trouble": "no answer"}, True, "no answer"),
        ({"runs": False, "chains": 0, "proxyAll": True, "tables": ["ip kube-proxy"]}, False, ""),
        ({"runs": False, "chains": 0, "proxyAll": True, "ipvs": True}, False, ""),
        ({"runs": False, "chains": 0, "proxyAll": True, "virtualServers": 1}, False, ""),
        ({"runs": False, "chains": 0, "proxyAll": True, "ipSets": 1}, False, ""),
    ],
)
def test_a_node_is_free_of_kube_proxy_and_served(change: dict[str, Any], free: bool, serves: str) -> None:
    node = NodeView("n1", TOLD | change)
    assert (node.is_free, node.serves) == (free, serves)


def test_pods_are_bound_to_labelled_nodes_and_to_what_they_were_bound_to() -> None:
    bound = only_labelled(None)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert bound == {"nodeSelectorTerms": [{"matchExpressions": [KEPT]}]}
    other = {"key": "a", "operator": "Exists"}
    terms = [{"matchExpressions": [other]}, {"matchFields": [other]}]
    given = {
        "podAffinity": {"x": 1},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
    }
    found = only_labelled(given)
    assert found["podAffinity"] == {"x": 1}
    assert found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [other, KEPT]},
        {"matchFields": [other], "matchExpressions": [KEPT]},
    ]
    assert terms == [{"matchExpressions": [other]}, {"matchFields": [other]}]


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"annotations": {"meta.helm.sh/release-name": "antrea"}}, "Helm release antrea"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "net:/ConfigMap:kube-system/antrea-config"}}, "Argo CD application net"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "net"}, "annotations": {"meta.helm.sh/release-name": "x"}}, "Flux HelmRelease net"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "net"}}, "Flux Kustomization net"),
        ({"labels": {"app": "antrea"}}, "None"),
        ({}, "None"),
    ],
)  # fmt: skip
def test_a_config_map_names_the_tool_that_applies_it(metadata: dict[str, Any], named: str) -> None:
    assert str(config_owner(metadata)) == named


def test_a_config_map_of_a_release_is_edited_only_when_that_is_accepted() -> None:
    view = VIEW._replace(owner=ConfigOwner("Helm release", "antrea"), namespace="net")
    (line,) = blockers(view)
    assert line.startswith("ConfigMap net/antrea-config is applied by Helm release antrea")
    assert "helm -n net upgrade antrea CHART --reuse-values -f FILE" in line
    assert list(blockers(view, force_conflicts=True)) == []


def test_a_release_with_the_values_of_a_take_over_is_not_in_the_way() -> None:
    values = chart_values(proxy_all=True, override=VIEW.api_server)
    files = {"antrea-agent.conf": yaml.safe_dump(values), "antrea-controller.conf": yaml.safe_dump(values)}
    view = VIEW._replace(owner=ConfigOwner("Argo CD application", "net"), files=files)
    assert list(blockers(view)) == []
    (line,) = blockers(view._replace(api_server="https://192.0.2.11:6443"))
    assert "(commit FILE to the source of Argo CD application net; " in line


def test_external_addresses_of_nodes_are_named_before_with_what_becomes_of_them() -> None:
    def service(name: str, port: int, *ips: str, node_port: int = 0) -> dict[str, Any]:
        ports = [{"port": port, "protocol": "TCP", "nodePort": node_port}]
        spec = {"clusterIPs": ["10.96.0.9"], "ports": ports, "externalIPs": list(ips)}
        return {"metadata": {"namespace": "shop", "name": name}, "spec": spec}

    node = {
        "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"address": "n1"}]},
    }
    told = {**TOLD, "listening": [["TCP", "", 9000], ["TCP", "127.0.0.1", 8888]]}
    view = VIEW._replace(
        nodes=(NodeView("n1", told),),
        node_objects=(node,),
        services=(
            service("web", 8888, "192.0.2.1", "198.51.100.9"),
            service("api", 6443, "192.0.2.1"),
            service("own", 9000, "192.0.2.1"),
            service("port", 30080, "192.0.2.1"),
            service("other", 80, node_port=30080),
            {"metadata": {"namespace": "shop", "name": "odd"}, "spec": {"ports": 1}},
        ),
    )
    place = "Note: Service shop/{}: 192.0.2.1, port {}/TCP, is an address of Node n1: Antrea "
    notes = [one for one in changes(view) if one.startswith("Note: Service")]
    assert notes == [
        place.format("web", 8888) + "serves it at that Node alone",
        place.format("api", 6443) + "does not serve it, as the port is for kube-apiserver",
        place.format("own", 9000)
        + "does not serve it, as the port is for a program of the Node, which listens there",
        place.format("port", 30080)
        + "does not serve it, as the port is for the NodePort of Service shop/other",
    ]
    off = CONF.replace("  skipServices", "  serveNodeExternalIPs: false\n  skipServices")
    notes = [
        one for one in changes(view._replace(files={"antrea-agent.conf": off})) if one.startswith("Note: S")
    ]
    assert len(notes) == 4
    assert {one.rpartition(", as ")[2] for one in notes} == {"antreaProxy.serveNodeExternalIPs is false"}


@pytest.mark.parametrize(
    "text",
    ["", "5", "null", "[]", "{}", "[" * 100_000, *(json.dumps(TOLD | {key: {"x": [1]}}) for key in TOLD)],
)
def test_an_answer_of_another_form_is_of_no_agent(text: str) -> None:
    with pytest.raises(Invalid):
        report_of(text)


def test_an_answer_of_an_agent_is_taken_as_it_is() -> None:
    told = TOLD | {"listening": [["TCP", "127.0.0.1", 10249]], "of a later release": {}}
    assert report_of(json.dumps(told)) == told

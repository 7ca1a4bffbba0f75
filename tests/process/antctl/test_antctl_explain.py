"""antctl explain against a cluster on loopback with an agent on each Node, and against a support bundle of it."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from loopback import answering

from antrea.agent.api.certificate import certificate
from antrea.antctl import mode
from antrea.antctl.main import antctl
from antrea.antctl.request import Server
from antrea.antctl.supportbundle.cluster import write_cluster
from antrea.outside.kube.kubeconfig import kubeconfig
from antrea.outside.tls.server_context import server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from click.testing import Result

PAIR = certificate()
CRD = "/apis/crd.antrea.io/v1beta1"
CLOSED = {
    "metadata": {
        "namespace": "shop",
        "name": "closed",
        "uid": "1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    },
    "spec": {
        "podSelector": {"matchLabels": {"app": "web"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80, "protocol": "TCP"}]}],
    },
}
PASSES = (
    " 9. EgressRule: priority 0, cookie 0x1\n    goto_table:L3Forwarding\n12. L3Forwarding: ip, priority 210\n"
    "15. IngressRule: conj_id=3,ip, priority 190, cookie 0x2\n17. IngressMetric: ct_label=0x3\n"
    "18. ConntrackCommit: ct_state=+new+trk,ip, priority 200\n"
)
DROPPED = (
    " 9. EgressRule: priority 0, cookie 0x1\n12. L3Forwarding: ip, priority 210\n"
    "16. IngressDefaultRule: reg1=0xb, priority 200, cookie 0x2\n    drop\n"
)
COPIED = """\
17. AntreaPolicyIngressRule: conj_id=2, priority 14000, cookie 0x1020000000000
    set_field:0x2->reg3
    set_field:0x400/0x400->reg0
    set_field:{noted}000000/0xfe000000->reg0
    group:4
    bucket 0
            resubmit(,IngressMetric)
        20. IngressMetric: reg0=0x400/0x400,reg3=0x2, priority 200, cookie 0x1020000000000
            drop
    bucket 1
            set_field:0x400000/0x600000->reg0
            resubmit(,Output)
        22. Output: reg0={noted}400000/0xfe600000, priority 200, cookie 0x1020000000000
            meter:256
            controller(reason=no_match,id=32776,userdata=01.{operations})
"""
LOGGED = " 9. EgressRule: priority 0, cookie 0x1\n22. Output: reg0=0x2400000/0xfe600000\n    controller(reason=no_match,id=32776,userdata=01.01)\n12. L3Forwarding: ip, priority 210\n"
"""What the sender's policy allows and logs."""


def pod(name: str, last: int, node: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": name}, "creationTimestamp": None},
        "spec": {
            "nodeName": node,
            "containers": [{"name": name, "env": [{"name": "DB_TOKEN", "value": "x"}]}],
        },
        "status": {"phase": "Running", "podIPs": [{"ip": f"10.10.0.{last}"}]},
    }


class Shop:
    """What kube-apiserver and the agents answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.trace = PASSES
        self.gates = ""
        self.names: dict[str, list[dict[str, str]] | None] = {}
        """What agents have of names, by scope."""
        self.names_status = 200
        self.asked: list[dict[str, str]] = []
        """Of agents."""
        self.lists: dict[str, list[dict[str, Any]]] = {
            "/api/v1/namespaces": [{"metadata": {"name": "shop"}}],
            "/api/v1/pods": [pod("client", 11, "n1"), pod("web", 12, "n1")],
            "/api/v1/services": [],
            "/apis/discovery.k8s.io/v1/endpointslices": [],
            "/api/v1/namespaces/kube-system/configmaps": [],
            "/apis/networking.k8s.io/v1/networkpolicies": [CLOSED],
            "/apis/apps/v1/daemonsets": [{"metadata": {"name": "antrea-agent", "namespace": "kube-system"}}],
            **{f"{CRD}/{one}": [] for one in ("clusternetworkpolicies", "networkpolicies", "tiers", "groups", "clustergroups")},
        }  # fmt: skip

    def proxied(self, on: bool) -> None:
        """Have AntreaProxy on or off."""
        conf = f"featureGates: {{AntreaProxy: {json.dumps(on)}, {self.gates}}}"
        found = {"metadata": {"name": "antrea-config"}, "data": {"antrea-agent.conf": conf}}
        self.lists["/api/v1/namespaces/kube-system/configmaps"] = [found]

    def begin(self, kubernetes: str, agent: str) -> None:
        """Both listen now."""
        bundle = base64.b64encode(PAIR.certificate_pem.encode()).decode()
        port = int(agent.rpartition(":")[2])
        info = {"metadata": {"name": "n1"}, "nodeRef": {"name": "n1"}, "apiPort": port, "apiCABundle": bundle}
        self.lists[f"{CRD}/antreaagentinfos"] = [info]
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        self.lists["/api/v1/nodes"] = [{"metadata": {"name": "n1"}, "status": {"addresses": addresses}}]
        config = {
            "apiVersion": "v1",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": kubernetes}}],
            "users": [{"name": "u", "user": {"token": "anna"}}],
        }
        self.kubeconfig.write_text(json.dumps(config))

    async def kubernetes(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return web.json_response({"status": {"token": "of-antctl"}}, status=201)
        if request.path in self.lists:
            return web.json_response({"metadata": {}, "items": self.lists[request.path]})
        collection, _, name = request.path.rpartition("/")
        for one in self.lists.get(collection, ()):
            if one["metadata"]["name"] == name:
                return web.json_response(one)
        return web.json_response({"kind": "Status", "message": "not found"}, status=404)

    async def agent(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer of-antctl"
        if request.path == "/fqdncache":
            return web.json_response(self.names.get(request.query["scope"]), status=self.names_status)
        assert request.path == "/ovstracing"
        self.asked.append(dict(request.query))
        return web.json_response({"result": self.trace})

    async def explain(self, *words: str) -> Result:
        """`antctl explain` beside the servers' loop."""
        command = ["-k", str(self.kubeconfig), "explain", *words]
        return await asyncio.to_thread(CliRunner().invoke, antctl(mode.REMOTE), command, prog_name="antctl")


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    found = Shop(tmp_path)
    found.proxied(False)
    async with (
        answering(found.kubernetes) as kubernetes,
        answering(found.agent, server_tls(PAIR)) as agent,
    ):
        found.begin(kubernetes, agent)
        yield found


ENDS = ("--from", "shop/client", "--to", "shop/web")


async def test_antctl_explain_prints_verdict_rule_change_and_the_flows_of_the_node(shop: Shop) -> None:
    result = await shop.explain(*ENDS, "--port", "80/tcp")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "Allow: 80/tcp from shop/client (10.10.0.11) to shop/web (10.10.0.12)",
            "Because: Ingress rule 0 of K8sNetworkPolicy shop/closed allows the packet.",
            "",
            "DIRECTION POD         VERDICT BECAUSE                                                            ",
            "Egress    shop/client Allow   No policy isolates Pod shop/client for egress, and no rule matches.",
            "Ingress   shop/web    Allow   Ingress rule 0 of K8sNetworkPolicy shop/closed allows the packet.  ",
            "",
            "The smallest change that would refuse it: Delete ingress rule 0 of K8sNetworkPolicy shop/closed.",
            "",
            "Switch of Node n1 (egress): does the same, by these flows:",
            "  EgressRule: priority 0, cookie 0x1",
            "",
            "Switch of Node n1 (ingress): does the same, by these flows:",
            "  IngressRule: conj_id=3,ip, priority 190, cookie 0x2",
            "  IngressMetric: ct_label=0x3",
            "",
            "Not taken into account:",
            "- the cluster does not know externalentities.crd.antrea.io: none is taken into account",
        ],
    )
    assert shop.asked[0] == {
        "source": "shop/client",
        "destination": "shop/web",
        "flow": "tcp,tcp_src=40000,tcp_dst=80",
        "addressFamily": "4",
    }


async def test_antctl_explain_ends_with_3_for_what_is_refused_and_4_where_the_switch_does_otherwise(
    shop: Shop,
) -> None:
    shop.trace = DROPPED
    refused = await shop.explain(*ENDS, "--port", "81/tcp", "-o", "json")
    answer = json.loads(refused.stdout)
    assert (refused.exit_code, answer["verdict"], answer["direction"]) == (3, "Drop", "Ingress")
    assert answer["changes"] == ["Add port 81/tcp to ingress rule 0 of K8sNetworkPolicy shop/closed."]
    assert answer["switches"][1] == {
        "node": "n1",
        "direction": "Ingress",
        "agrees": True,
        "does": "Drop",
        "flows": ["IngressDefaultRule: reg1=0xb, priority 200, cookie 0x2"],
        "why": "",
    }
    otherwise = await shop.explain(*ENDS, "--port", "80/tcp")
    assert otherwise.exit_code == 4
    assert "Switch of Node n1 (ingress): DOES OTHERWISE (Drop), by these flows:" in otherwise.stdout


def native(action: str, *, logs: bool) -> dict[str, Any]:
    rule = {"action": action, "enableLogging": logs, "from": [{"podSelector": {}}]}
    applied = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    spec = {"priority": 5, "tier": "application", "appliedTo": applied, "ingress": [rule]}
    return {"metadata": {"namespace": "shop", "name": "n", "uid": "2"}, "spec": spec}


@pytest.mark.parametrize(
    ("action", "logs", "trace", "code"),
    [
        ("Reject", False, LOGGED + COPIED.format(noted="0x4", operations="02"), 3),
        ("Reject", True, LOGGED + COPIED.format(noted="0x6", operations="03"), 3),
        ("Drop", True, LOGGED + COPIED.format(noted="0x2", operations="01"), 3),
        ("Drop", True, LOGGED + COPIED.format(noted="0x4", operations="02"), 4),
        ("Reject", False, LOGGED + COPIED.format(noted="0x2", operations="01"), 4),
        ("Allow", True, LOGGED + COPIED.format(noted="0x2", operations="01"), 4),
        ("Reject", False, PASSES, 4),
    ],
)
async def test_antctl_explain_takes_no_copy_for_the_agent_for_a_packet_that_passes(
    shop: Shop, action: str, logs: bool, trace: str, code: int
) -> None:
    shop.lists[f"{CRD}/networkpolicies"] = [native(action, logs=logs)]
    shop.trace = trace
    found = await shop.explain(*ENDS, "--port", "80/tcp")
    assert (found.exit_code, "DOES OTHERWISE" in found.stdout) == (code, code == 4)


async def test_antctl_explain_takes_a_packet_to_a_service_to_pass_where_it_goes_to_the_host(
    shop: Shop,
) -> None:
    spec = {"clusterIPs": ["10.96.0.10"], "ports": [{"port": 80, "protocol": "TCP"}]}
    shop.lists["/api/v1/services"] = [{"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}]
    asks = ("--from", "shop/client", "--to", "10.96.0.10", "--port", "80/tcp")
    shop.trace = (
        " 8. DNAT: ip,nw_dst=10.96.0.0/12, priority 200, cookie 0x1\n22. ConntrackCommit: ct_state=+new\n"
    )
    found = await shop.explain(*asks)
    assert found.exit_code == 0
    assert "does the same, by these flows:\n  DNAT: ip,nw_dst=10.96.0.0/12" in found.stdout
    shop.trace = " 8. DNAT: conj_id=2, priority 300, cookie 0x1\n12. EgressMetric: reg3=0x2\n    drop\n"
    assert (await shop.explain(*asks)).exit_code == 4


BALANCED = (
    "10. ServiceLB: tcp,nw_dst=10.96.0.10,tp_dst=80, priority 200, cookie 0x3\n    group:1\n"
    "11. EndpointDNAT: tcp,reg3=0xa0a000c, priority 200, cookie 0x3\n"
    "    ct(commit,table=12,zone=65520,nat(dst=10.10.0.12:{port}),exec(set_field:0x10/0x10->ct_mark))\n"
)
UNBALANCED = "11. EndpointDNAT: reg0=0x4000/0x4000, priority 200, cookie 0x3\n    controller(reason=no_match,id=32776,userdata=04)\n"


async def test_antctl_explain_follows_a_packet_to_the_endpoint_that_the_switch_chooses(shop: Shop) -> None:
    """By the cluster, and by a support bundle of it."""
    spec = {"clusterIPs": ["10.96.0.10"], "ports": [{"port": 80, "protocol": "TCP"}]}
    shop.lists["/api/v1/services"] = [{"metadata": {"namespace": "shop", "name": "front"}, "spec": spec}]
    labels = {"kubernetes.io/service-name": "front"}
    one = {
        "metadata": {"namespace": "shop", "name": "front-1", "labels": labels},
        "ports": [{"port": 80, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": ["10.10.0.12"], "nodeName": "n1", "conditions": {"ready": True}}],
    }
    slices = "/apis/discovery.k8s.io/v1/endpointslices"
    shop.lists[slices] = [one]
    shop.proxied(True)
    asks = ("--from", "shop/client", "--to", "shop/front", "--port", "80/tcp")
    shop.trace = BALANCED.format(port=80) + PASSES
    found = await shop.explain(*asks)
    assert found.stdout.splitlines()[:6] == [
        "Allow: 80/tcp from shop/client (10.10.0.11) to 10.96.0.10",
        "Because: Ingress rule 0 of K8sNetworkPolicy shop/closed allows the packet.",
        "",
        "AntreaProxy chooses one of the ready Endpoints of Service shop/front:",
        "ENDPOINT ADDRESS       VERDICT BECAUSE                                                          ",
        "shop/web 10.10.0.12:80 Allow   Ingress rule 0 of K8sNetworkPolicy shop/closed allows the packet.",
    ]
    assert (found.exit_code, found.stdout.count("does the same")) == (0, 2)
    assert (len(shop.asked), shop.asked[0]["destination"]) == (1, "10.96.0.10")
    shop.trace = BALANCED.format(port=81) + PASSES
    assert (await shop.explain(*asks)).exit_code == 4
    folder = shop.folder / "bundle"
    folder.mkdir()
    server = Server(kubeconfig(shop.kubeconfig, plugins=True), 60)
    await asyncio.to_thread(write_cluster, server, "kube-system", folder / "clusterinfo")
    shop.lists[slices] = []
    shop.trace = UNBALANCED
    rejected = await shop.explain(*asks)
    assert (rejected.exit_code, rejected.stdout.splitlines()[3]) == (
        3,
        "AntreaProxy chooses one of the ready Endpoints of Service shop/front: there is none.",
    )
    assert "Switch of Node n1 (egress): does the same" in rejected.stdout
    shop.trace = PASSES
    assert (await shop.explain(*asks)).exit_code == 4
    offline = await shop.explain(*asks, "--bundle", str(folder))
    assert offline.stdout.splitlines()[:6] == found.stdout.splitlines()[:6]


async def test_antctl_explain_names_a_configuration_that_it_cannot_read(shop: Shop) -> None:
    maps = "/api/v1/namespaces/kube-system/configmaps"
    lack = "- ConfigMap antrea-config: {}: AntreaProxy is taken to be as by default"
    shop.lists[maps][0]["data"]["antrea-agent.conf"] = "antreaProxy: {enable: maybe}"
    assert lack.format("antrea-agent.conf: antreaProxy.enable: ")[:60] in (await shop.explain(*ENDS)).stdout
    shop.lists[maps] = []
    missing = lack.format("request to server failed: not found")
    assert missing in (await shop.explain(*ENDS)).stdout


async def test_antctl_explain_lets_pods_have_their_own_addresses_outside_with_no_snat(shop: Shop) -> None:
    meta = {"namespace": "shop", "name": "vm1"}
    entity = {"metadata": meta, "spec": {"endpoints": [{"ip": "203.0.113.2"}], "externalNode": "vm1"}}
    shop.lists["/apis/crd.antrea.io/v1alpha2/externalentities"] = [entity]
    rules = [{"action": "Allow", "from": [{"podSelector": {}}]}, {"action": "Drop"}]
    spec = {"priority": 5, "appliedTo": [{"externalEntitySelector": {}}], "ingress": rules}
    shop.lists[f"{CRD}/networkpolicies"] = [{"metadata": meta, "spec": spec}]
    asks = ("--from", "shop/client", "--to", "203.0.113.2", "--port", "80/tcp")
    (found,) = shop.lists["/api/v1/namespaces/kube-system/configmaps"]
    for conf, verdict in (("{}", "Drop"), ("{trafficEncapMode: noEncap, noSNAT: true}", "Allow")):
        found["data"]["antrea-agent.conf"] = conf
        assert (await shop.explain(*asks)).stdout.startswith(f"{verdict}: ")


async def test_antctl_explain_leaves_out_admin_policies_whose_gate_is_off(shop: Shop) -> None:
    kind = "clusternetworkpolicies.policy.networking.k8s.io"
    maps = "/api/v1/namespaces/kube-system/configmaps"
    deny = {"action": "Deny", "from": [{"namespaces": {}}]}
    spec = {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "ingress": [deny]}
    shop.lists["/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"] = [
        {"metadata": {"name": "guard"}, "spec": spec}
    ]
    off = await shop.explain(*ENDS)
    assert "guard" not in off.stdout
    lack = f"- {kind}: the feature gate ClusterNetworkPolicy is off in antrea-controller.conf: none is taken into account"
    assert lack in off.stdout
    # nothing is lacking of a kind that the cluster does not know and nobody wants
    assert "baselineadminnetworkpolicies" not in off.stdout
    conf = "featureGates: {ClusterNetworkPolicy: true, AdminNetworkPolicy: true}"
    shop.lists[maps][0]["data"]["antrea-controller.conf"] = conf
    on = await shop.explain(*ENDS)
    told = "Ingress rule 0 of K8sClusterNetworkPolicy guard in tier Admin (220), priority 1 drops"
    assert told in on.stdout
    assert "the cluster does not know baselineadminnetworkpolicies.policy.networking.k8s.io" in on.stdout


async def test_antctl_explain_says_so_if_an_agent_cannot_be_reached(shop: Shop) -> None:
    shop.lists[f"{CRD}/antreaagentinfos"] = []
    result = await shop.explain(*ENDS)
    assert result.exit_code == 0
    told = "Switch of Node n1 (egress): it could not be asked: request to server failed: not found\n"
    assert told in result.stdout
    assert "could not be asked" not in (await shop.explain(*ENDS, "--no-switches")).stdout


async def test_antctl_explain_says_the_same_of_a_support_bundle(shop: Shop) -> None:
    folder = shop.folder / "bundle"
    folder.mkdir()
    server = Server(kubeconfig(shop.kubeconfig, plugins=True), 60)
    await asyncio.to_thread(write_cluster, server, "kube-system", folder / "clusterinfo")
    live = await shop.explain(*ENDS, "--no-switches", "-o", "yaml")
    shop.lists.clear()
    offline = await shop.explain(*ENDS, "--bundle", str(folder), "-o", "yaml")
    assert offline.exit_code == 0
    assert offline.stdout.partition("lacks:")[0] == live.stdout.partition("lacks:")[0]
    assert (
        "clusterinfo: externalentities.crd.antrea.io not complete: request to server failed: not found"
        in offline.stdout
    )


async def test_antctl_explain_names_what_it_lacks(shop: Shop) -> None:
    old = shop.folder / "clusterinfo"
    old.write_text("#pods\n#nodes\n#configs\n")
    broken = shop.folder / "broken"
    broken.write_text("#pods\n{\n#namespaces\n#networkpolicies.networking.k8s.io\n")
    shop.lists["/api/v1/pods"].append({"metadata": {"namespace": "shop", "name": "odd"}, "spec": 1})
    for words, why in (
        (("--bundle", str(shop.folder)), "has no namespaces, networkpolicies.networking.k8s.io: bundles have them since"),
        (("--bundle", str(shop.folder / "none")), "an explanation needs the file clusterinfo of a bundle"),
        (("--bundle", str(broken)), "broken: while parsing"),
        ((), "Error: Pod shop/odd: Expected `object`, got `int`"),
    ):  # fmt: skip
        result = await shop.explain(*ENDS, *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert why in result.stderr
    del shop.lists["/api/v1/pods"]
    assert "pods: request to server failed: not found" in (await shop.explain(*ENDS)).stderr


STEERED = """\

TrafficControl old of Pod shop/web, received on Node n1: it goes to device ids0, and does not come back.
"""


async def test_antctl_explain_names_trafficcontrols_and_what_their_node_lacks(shop: Shop) -> None:
    spec = {
        "appliedTo": {"podSelector": {"matchLabels": {"app": "web"}}},
        "direction": "Both",
        "action": "Redirect",
        "targetPort": {"device": {"name": "ids0"}},
    }
    shop.lists["/apis/crd.antrea.io/v1alpha2/trafficcontrols"] = [
        {"metadata": {"name": name, "creationTimestamp": f"202{year}-01-01T00:00:00Z"}, "spec": spec}
        for year, name in enumerate(("old", "new"), 5)
    ]
    off = (await shop.explain(*ENDS)).stdout
    assert "TrafficControl old" not in off
    assert "trafficcontrols.crd.antrea.io: the feature gate TrafficControl is off in antrea-agent.conf" in off
    maps = "/api/v1/namespaces/kube-system/configmaps"
    shop.lists[maps][0]["data"]["antrea-agent.conf"] = "featureGates: {TrafficControl: true}"
    found = (await shop.explain(*ENDS)).stdout
    assert STEERED in found
    assert "- Without effect: new: an older one selects the Pod too, old" in found
    assert "Not realized" not in found
    message = "ports of TrafficControls are not on the bridge: 'ids0' of old: create the device"
    missing = {"type": "TrafficControlPortsMissing", "status": "True", "message": message}
    info = shop.lists[f"{CRD}/antreaagentinfos"][0]
    info["agentConditions"] = [missing]
    assert f"{STEERED}- Not realized: {message}" in (await shop.explain(*ENDS)).stdout
    info["agentConditions"] = [missing | {"message": message.replace("old", "older")}]
    assert "Not realized" not in (await shop.explain(*ENDS)).stdout


def named(name: str, address: str) -> dict[str, str]:
    return {"fqdnName": name, "ipAddress": address, "expirationTime": "2026-01-02T03:04:05Z"}


NO_DEBIAN = {
    "metadata": {"name": "no-debian", "uid": "3"},
    "spec": {
        "priority": 5,
        "appliedTo": [{"podSelector": {}, "namespaceSelector": {}}, {"nodeSelector": {}}],
        "egress": [{"action": "Drop", "to": [{"fqdn": "*.debian.org"}]}],
    },
}
OUTSIDE = ("--to", "203.0.113.7", "--port", "443/tcp")


@pytest.mark.parametrize(("source", "scope"), [("shop/client", "pods"), ("127.0.0.1", "node")])
async def test_antctl_explain_asks_the_agent_of_the_sender_for_names_of_the_address(
    shop: Shop, source: str, scope: str
) -> None:
    """Of what DNS answered to Pods, or to the Node itself."""
    shop.gates = "NodeNetworkPolicy: true"
    shop.proxied(False)
    shop.lists[f"{CRD}/clusternetworkpolicies"] = [NO_DEBIAN]
    shop.trace = " 7. AntreaPolicyEgressRule: conj_id=2, cookie 0x1\n 9. EgressMetric: reg3=0x2\n    drop\n"
    asks = ("--from", source, *OUTSIDE)
    rows = [
        named("deb.debian.org", "203.0.113.7"),
        named("www.debian.org", "203.0.113.8"),
        named("a.example", "203.0.113.7"),
    ]
    shop.names = {scope: rows}
    found = await shop.explain(*asks)
    assert found.exit_code == 3, found.stdout
    assert "Names: a.example, deb.debian.org, by DNS answers that the agent of Node n1 has." in found.stdout
    assert "Without effect" not in found.stdout
    shop.names = {scope: None}
    shop.trace = PASSES
    nameless = await shop.explain(*asks, "-o", "json")
    answer = json.loads(nameless.stdout)
    assert (nameless.exit_code, answer["packet"]["namesOf"]) == (0, "n1")
    assert "names" not in answer["packet"]
    given = await shop.explain(*asks, "--name", "ftp.debian.org", "--no-switches")
    assert given.exit_code == 3


async def test_antctl_explain_says_that_names_could_not_be_had(shop: Shop) -> None:
    shop.lists[f"{CRD}/clusternetworkpolicies"] = [NO_DEBIAN]
    shop.names_status = 403
    found = await shop.explain("--from", "shop/client", *OUTSIDE)
    assert "- domain names, by which rules match: Node n1 could not be asked: " in found.stdout
    assert "fqdn matches by the names of --name alone" in found.stdout

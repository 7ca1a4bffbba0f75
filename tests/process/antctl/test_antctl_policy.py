"""`antctl policy recommend` before a cluster with Pods, from what `antctl get flowmap` has printed."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner
from loopback import answering

from antrea.antctl import mode
from antrea.antctl.main import antctl as program
from antrea.antctl.policy.recommendation import DENY, FLOWS, Link, recommend

if TYPE_CHECKING:
    from pathlib import Path

WEB, DB, DNS = "workload/shop/web", "workload/shop/db", "workload/kube-system/coredns"
PODS = {
    "shop": [
        ("web-6799fc88d8-xbcdz", {"app": "web", "pod-template-hash": "6799fc88d8", "n": "1"}),
        ("web-6799fc88d8-bcdfg", {"app": "web", "pod-template-hash": "6799fc88d8", "n": "2"}),
        ("db-0", {"app": "db", "statefulset.kubernetes.io/pod-name": "db-0"}),
        ("plain", {}),
    ],
    "kube-system": [("coredns-66bc5c9577-xbcdf", {"k8s-app": "kube-dns"})],
}  # fmt: skip
LINKS = [
    Link(WEB, DB, 5432, 6, 7, 0),
    Link(WEB, DB, 5433, 6, 2, 1),
    Link(WEB, DNS, 53, 17, 9, 0),
    Link("address/192.0.2.7", WEB, 8080, 6, 3, 0),
    Link("address/fd00::7", WEB, 8080, 6, 3, 0),
    Link(DB, WEB, 22, 6, 4, 4),
    Link(DB, WEB, 0, 1, 2, 0),
    Link("workload/shop/plain", DB, 5432, 6, 1, 0),
]


def pods() -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"namespace": space, "name": name, "labels": labels},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "podIP": ADDRESSES[name], "podIPs": [{"ip": ADDRESSES[name]}]},
        }
        for space, found in PODS.items()
        for name, labels in found
    ]


def test_what_was_seen_is_allowed_and_nothing_else() -> None:
    found = recommend("shop", LINKS, pods())
    db, web_, isolation = found.policies
    assert isolation["metadata"]["name"] == DENY
    assert isolation["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert db["spec"] == {
        "podSelector": {"matchLabels": {"app": "db"}},
        "policyTypes": ["Ingress"],
        "ingress": [{
            "from": [{"podSelector": {"matchLabels": {"app": "web"}}}],
            "ports": [{"protocol": "TCP", "port": 5432}, {"protocol": "TCP", "port": 5433}],
        }],
    }  # fmt: skip
    blocks = [{"ipBlock": {"cidr": "192.0.2.7/32"}}, {"ipBlock": {"cidr": "fd00::7/128"}}]
    assert web_["spec"]["ingress"] == [{"from": blocks, "ports": [{"protocol": "TCP", "port": 8080}]}]
    dns = {
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    }
    assert web_["spec"]["egress"][1] == {"to": [dns], "ports": [{"protocol": "UDP", "port": 53}]}
    assert web_["metadata"]["annotations"][FLOWS].startswith(
        "192.0.2.7 -> shop/web TCP/8080: 3; fd00::7 -> shop/web TCP/8080: 3; shop/web -> kube-system/coredns UDP/53: 9"
    )
    assert found.left_out == [
        "shop/db -> shop/web 1/0: NetworkPolicies allow no protocol without ports alone",
        "shop/db -> shop/web TCP/22: denied 4 times",
        "shop/plain -> shop/db TCP/5432: no Pod of shop/plain has labels to select it by",
    ]
    assert found.notes == ["shop/web -> shop/db TCP/5433: is allowed, and was denied 1 times"]


ADDRESSES = {
    name: f"10.1.0.{number}" for number, name in enumerate((n for f in PODS.values() for n, _ in f), 5)
}


async def answer(request: web.Request) -> web.StreamResponse:
    """Of the cluster's API server: Pods, Namespaces, and no policy yet."""
    parts = request.path.split("/")
    if parts[-1] == "pods":
        items = [one for one in pods() if len(parts) == 4 or one["metadata"]["namespace"] == parts[4]]
    elif parts[-1] == "namespaces":
        items = [
            {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}} for name in PODS
        ]
    else:
        items = []
    return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})


async def run(folder: Path, seen: Any, *words: str) -> subprocess.CompletedProcess[str]:
    """`antctl policy recommend` on a workstation, before the API server of that cluster."""
    return await antctl(folder, seen, "recommend", "-n", "shop", *words)


async def antctl(folder: Path, seen: Any, *words: str) -> subprocess.CompletedProcess[str]:

    (folder / "seen.json").write_text(seen if isinstance(seen, str) else json.dumps(seen))
    async with answering(answer) as url:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "current-context": "x",
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        words = (
            "--kubeconfig",
            str(folder / "kubeconfig"),
            "policy",
            *words,
            "--flows",
            str(folder / "seen.json"),
        )
        done = await asyncio.to_thread(
            CliRunner().invoke, program(mode.REMOTE), words, prog_name="antctl", catch_exceptions=True
        )
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def seen_of(*links: Link) -> dict[str, Any]:
    return {"links": [{**link._asdict(), "bytes": 1} for link in links], "truncated": False}


async def test_the_command_prints_policies_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    done = await run(tmp_path, seen_of(*LINKS))
    assert (done.returncode, done.stderr.count("left out: "), done.stderr.count("note: ")) == (0, 3, 1), (
        done.stderr
    )
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(done.stdout)]
    assert names == ["recommended-db", "recommended-web", DENY]
    shown = await run(tmp_path, seen_of(*LINKS), "-o", "table")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["NAME", "POD-SELECTOR", "INGRESS-RULES", "EGRESS-RULES"],
        ["recommended-db", "app=db", "1", "0"],
        ["recommended-web", "app=web", "1", "2"],
        [DENY, "all", "0", "0"],
    ]
    listed = json.loads((await run(tmp_path, seen_of(*LINKS), "-o", "json")).stdout)
    assert (listed["kind"], len(listed["items"])) == ("List", 3)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ("{", "--flows: "),
        ({"rows": []}, "not what `antctl get flowmap --by endpoint -o json` prints"),
        (seen_of(Link("external", WEB, 80, 6, 1, 0)), "'external' is not a workload or address"),
        (seen_of(Link("workload/../../api", WEB, 80, 6, 1, 0)), "is not a workload or address"),
        (seen_of(Link("workload/../api", WEB, 80, 6, 1, 0)), "is not a workload or address"),
        (
            seen_of(Link("workload/shop/\x1b[31m", WEB, 80, 6, 1, 0)),
            r"'workload/shop/\x1b[31m' is not a workload",
        ),
        (seen_of(Link("address/fe80::1%eth0", WEB, 80, 6, 1, 0)), "is not a workload or address"),
        (seen_of(Link(DB, WEB, 65536, 6, 1, 0)), "port 65536 is not a number from 0 to 65535"),
        (
            '{"links": [{"source": "workload/shop/db", "target": "workload/shop/web", "port": Infinity}]}',
            "port inf",
        ),
        ("[" * 100_000, "is not JSON"),
        (seen_of(), "no connection of Namespace shop was seen"),
        (seen_of(Link(DB, WEB, 22, 6, 4, 4)), "no connection of Namespace shop was seen"),
        ({"links": [], "truncated": True}, "ask for less by --since"),
    ],
)
async def test_what_cannot_be_recommended_from_is_named(tmp_path: Path, seen: Any, words: str) -> None:
    done = await run(tmp_path, seen)
    assert (done.returncode, words in done.stderr) == (1, True), done.stderr


async def test_a_record_with_a_bad_name_costs_the_others_nothing_and_is_counted(tmp_path: Path) -> None:
    """An agent that is not what it should be sends any text as the name of a Pod."""
    links = [Link(WEB, DB, 5432, 6, 7, 0), Link(WEB, DNS, 53, 17, 9, 0)]
    names = ["../../api", "\x1b[31m", "x" * 400, "kind: Namespace"]
    hostile = [Link(f"workload/shop/{name}", WEB, 80, 6, 1, 0) for name in names]
    alone, both = await run(tmp_path, seen_of(*links)), await run(tmp_path, seen_of(*hostile, *links))
    assert (both.returncode, both.stdout) == (0, alone.stdout), both.stderr
    assert "left out: 4 that cannot be used, such as: 'workload/shop/../../api' is no" in both.stderr
    assert max(map(len, both.stderr.splitlines())) < 250
    policies = tmp_path / "policies.yaml"
    policies.write_text(alone.stdout)
    done = await antctl(tmp_path, seen_of(*hostile, *links), "replay", "-f", str(policies))
    assert done.returncode == 0, done.stderr
    assert "2 connections were judged" in done.stderr
    assert "not judged: 4 that cannot be used" in done.stderr


async def test_recommended_policies_change_nothing_of_what_was_seen_and_allowed(tmp_path: Path) -> None:
    """And close what was not: the replay says so without a packet."""
    seen = [
        link
        for link in LINKS
        if link.denied == 0
        and link.protocol != 1
        and "fd00" not in link.source
        and "plain" not in link.source
    ]
    policies = tmp_path / "policies.yaml"
    policies.write_text((await run(tmp_path, seen_of(*seen))).stdout)
    done = await antctl(tmp_path, seen_of(*seen), "replay", "-f", str(policies))
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
    assert f"{len(seen)} connections were judged: 0 would be denied" in done.stderr

    other = Link(DB, WEB, 22, 6, 4, 0)
    gone = Link("workload/shop/gone", WEB, 22, 6, 4, 0)
    done = await antctl(tmp_path, seen_of(other, gone), "replay", "-f", str(policies))
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[1].split()[:6] == ["shop/db", "shop/web", "22", "4", "Allow", "Drop"]
    assert "not judged: shop/gone -> shop/web TCP/22: shop/gone: no Pod of it is there now" in done.stderr
    (row,) = json.loads(
        (await antctl(tmp_path, seen_of(other), "replay", "-f", str(policies), "-o", "json")).stdout
    )
    assert (row["before"], row["after"]) == ("Allow", "Drop")


async def test_a_replay_is_of_the_namespace_and_fails_where_nothing_is_judged(tmp_path: Path) -> None:
    closed = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}, spec: {podSelector: {}}}"
    (tmp_path / "policies.yaml").write_text(closed)
    words = ("replay", "-f", str(tmp_path / "policies.yaml"), "-n")
    other = await antctl(tmp_path, seen_of(Link(WEB, DB, 5432, 6, 1, 0)), *words, "kube-system")
    assert (other.returncode, "no connection was judged" in other.stderr) == (1, True), other.stderr
    own = await antctl(
        tmp_path, seen_of(Link(WEB, DB, 5432, 6, 1, 0), Link(WEB, DB, 0, 1, 1, 0)), *words, "shop"
    )
    assert own.returncode == 3, own.stderr
    assert "not judged: shop/web -> shop/db 1/0: protocol 1: " in own.stderr
    aged = await antctl(tmp_path, seen_of(*LINKS), *words, "shop", "--since", "2h")
    assert (aged.returncode, "--since: a file has no times" in aged.stderr) == (1, True), aged.stderr
    admin = "{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: a}}"
    (tmp_path / "policies.yaml").write_text(admin)
    off = await antctl(tmp_path, seen_of(*LINKS), *words, "shop")
    assert (off.returncode, "feature gate AdminNetworkPolicy is off" in off.stderr) == (1, True), off.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "has no objects of Kubernetes"),
        ("just text", "has no objects of Kubernetes"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: s}}", "v1/Secret: is not a policy"),
        (
            "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}, spec: {podSelector: 5}}",
            "NetworkPolicy",
        ),
    ],
)
async def test_a_file_that_has_no_policies_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "policies.yaml").write_text(text)
    done = await antctl(tmp_path, seen_of(*LINKS), "replay", "-f", str(tmp_path / "policies.yaml"))
    assert (done.returncode, words in done.stderr) == (1, True), done.stderr

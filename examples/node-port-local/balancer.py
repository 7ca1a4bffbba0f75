#!/usr/bin/env python3
"""A load balancer outside the cluster: it watches Pods, and leads connections to the ports of Nodes that their annotations name.

    balancer.py --address 192.0.2.80 --port 80 --selector app=web --pod-port 8080

It needs kubectl, with a kubeconfig that may list and watch Pods, and nft. New connections go to the Pods in turn; a Pod that is
not ready, or is being deleted, gets no more, and keeps those that it has.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import subprocess
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "nodeportlocal.antrea.io"


def places(pod: dict[str, Any], pod_port: int, family: str) -> list[tuple[str, int]]:
    """Where a Pod is reached from outside; nowhere unless it is ready."""
    ready = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}.get("Ready")
    meta = pod["metadata"]
    if ready != "True" or meta.get("deletionTimestamp"):
        return []
    rows = json.loads(meta.get("annotations", {}).get(KEY, "[]"))
    wanted = {"podPort": pod_port, "protocol": "tcp", "ipFamily": family}
    return [(row["nodeIP"], row["nodePort"]) for row in rows if wanted.items() <= row.items()]


def ruleset(address: str, port: int, members: list[tuple[str, int]]) -> str:
    """All rules of the balancer, in one transaction; none without members."""
    word = "ip6" if ":" in address else "ip"
    turns = ", ".join(f"{number} : {ip} . {at}" for number, (ip, at) in enumerate(members))
    chosen = f"dnat {word} to numgen inc mod {len(members)} map {{ {turns} }};"
    lead = f"{word} daddr {address} tcp dport {port} counter {chosen}" if members else ""
    return f"""
        table inet balancer {{}}
        delete table inet balancer
        table inet balancer {{
            chain arriving {{ type nat hook prerouting priority dstnat; {lead} }}
            chain own {{ type nat hook output priority -100; {lead} }}
            chain leaving {{ type nat hook postrouting priority srcnat; ct status dnat masquerade; }}
        }}
    """


def asked(kubectl: str, path: str) -> Iterator[dict[str, Any]]:
    """The JSON documents of an answer, one a line."""
    with subprocess.Popen([kubectl, "get", "--raw", path], stdout=subprocess.PIPE, text=True) as answer:
        try:
            yield from map(json.loads, answer.stdout or ())
        finally:
            answer.terminate()


def balance(given: argparse.Namespace) -> None:
    """List Pods, then follow them until the watch ends, which kube-apiserver ends after some minutes."""
    path = f"/api/v1/namespaces/{given.namespace}/pods?labelSelector={quote(given.selector)}"
    family = f"IPv{ipaddress.ip_address(given.address).version}"
    (listed,) = asked(given.kubectl, path)
    known = {pod["metadata"]["name"]: places(pod, given.pod_port, family) for pod in listed["items"]}
    apply(given, known)
    version = listed["metadata"]["resourceVersion"]
    for event in asked(given.kubectl, f"{path}&watch=1&resourceVersion={version}"):
        pod = event["object"]
        if event["type"] == "ERROR":
            return
        gone = event["type"] == "DELETED"
        found = [] if gone else places(pod, given.pod_port, family)
        if known.get(pod["metadata"]["name"], []) != found:
            known[pod["metadata"]["name"]] = found
            apply(given, known)


def apply(given: argparse.Namespace, known: dict[str, list[tuple[str, int]]]) -> None:
    """Have nftables lead to these places."""
    members = sorted(place for each in known.values() for place in each)
    rules = ruleset(given.address, given.port, members)
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    print(f"{len(members)} members: {members}", flush=True)


def main() -> None:
    """Balance until interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--address", required=True, help="address that clients connect to; packets to it reach this machine"
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--selector", required=True, help="labels of the Pods")
    parser.add_argument("--pod-port", type=int, required=True, help="port of the Pods' containers")
    parser.add_argument("--kubectl", default="kubectl", help="the program, if it is elsewhere")
    given = parser.parse_args()
    while True:
        balance(given)
        time.sleep(1)


if __name__ == "__main__":
    main()

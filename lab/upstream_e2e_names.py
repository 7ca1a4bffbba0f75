"""The names of the Internet that upstream's suite asks for, in a lab without it: DNS gives them addresses of its host `outside`.

Pods ask the lab's CoreDNS, and machines outside the cluster one that runs on that host.
"""

from __future__ import annotations

import json
import sys
from ipaddress import ip_interface
from typing import TYPE_CHECKING

from lab import artifacts, namespace
from lab.process import launch
from lab.topology import EXTERNAL_HOST, OUTSIDE

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import Lab
    from lab.topology import Family

HOST, SERVER, RESOLVER = "outside", "names-server", "names-resolver"
NAMES = {
    20: ("github.com", "docs.github.com", "api.github.com"),
    21: ("wayfair.com",),
    22: ("stackoverflow.com",),
    23: ("facebook.com",),
    24: ("docs.amazon.com",),
    25: ("docs.google.com",),
}
"""Names by host number in the network of `outside`: one address for each set of names that a rule of its own is for."""
KUBERNETES = "    kubernetes "
"""Where the Corefile's other plugins begin."""
DEPLOYMENT = ("-n", "kube-system", "rollout")


def addresses(family: Family) -> dict[str, tuple[str, ...]]:
    """With prefix length, and the names of each."""
    return {address: names for host, names in NAMES.items() for address in OUTSIDE.pick(host, family)}


def resolver(family: Family) -> str:
    """Address of `outside` at which port 53 answers for these names."""
    return str(ip_interface(OUTSIDE.pick(EXTERNAL_HOST, family)[0]).ip)


def corefile(before: str, family: Family) -> str:
    """The same with plugin `hosts` for these names; what has it already is left as it is."""
    text = _hosts(family)
    return before if text in before else before.replace(KUBERNETES, text + KUBERNETES, 1)


def _hosts(family: Family) -> str:
    lines = [f"{ip_interface(address).ip} {' '.join(names)}" for address, names in addresses(family).items()]
    block = "".join(f"        {line}\n" for line in (*lines, "fallthrough"))
    return f"    hosts {{\n{block}    }}\n"


def serve(lab: Lab) -> None:
    """Give `outside` the addresses, servers of HTTP and DNS, and CoreDNS the names. May be repeated."""
    family, record = lab.topology.family, lab.record
    home, empty = namespace.path(record, HOST), record.directory / SERVER
    empty.mkdir(exist_ok=True)
    with record.locked():
        namespace.script(
            record, home, [f"ip address replace {address} dev eth0" for address in addresses(family)]
        )
        if SERVER not in record.processes():
            argv = [sys.executable, "-I", "-m", "http.server", "80", "--bind=::", "--protocol=HTTP/1.1"]
            argv += [f"--directory={empty}"]
            launch(record, SERVER, namespace.inside(home, argv))
        if RESOLVER not in record.processes():
            (empty.parent / RESOLVER).write_text(f".:53 {{\n{_hosts(family)}}}\n")
            resolver: list[str | Path] = [artifacts.binaries(print).coredns, "-conf", empty.parent / RESOLVER]
            launch(record, RESOLVER, namespace.inside(home, resolver))
    before = lab.api.get("/api/v1/namespaces/kube-system/configmaps/coredns")["data"]["Corefile"]
    if (after := corefile(before, family)) != before:
        patch = json.dumps({"data": {"Corefile": after}})
        lab.api.kubectl("-n", "kube-system", "patch", "configmap", "coredns", "-p", patch)
        lab.api.kubectl(*DEPLOYMENT, "restart", "deployment/coredns")
        lab.api.kubectl(*DEPLOYMENT, "status", "deployment/coredns", "--timeout=60s", seconds=90)

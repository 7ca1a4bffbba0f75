"""Write docs/generated/proofs.md: what each test module of the product shows, by area, with the command that runs it.

An area is a word in the name of a test module (AREAS, the first that fits). The sentence is the first line of the module's
docstring. A module is wide if every test of it is: pytest's marker `wide` stands for the module or for each of its functions.
"""

import ast
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/generated/proofs.md"
TIERS = {
    "process": "make process",
    "ovs": "make ovs",
    "host": "make host",
    "lab": "make lab-test",
    "vm": "make vm",
}
"""Tiers with something real outside, and the command of each; what the tier `unit` shows is no proof for a user."""
AREAS = {
    "Policies on Nodes": ("node_policy", "node_fqdn"),
    "ExternalNode": ("external_node", "machine", "interface_connection"),
    "L7 policies and L7 flow export": ("l7",),
    "Policies": ("policy", "fqdn", "reject", "cut", "first_packet", "last_word", "revalidation"),
    "External IPs of Services": ("external_ip", "metallb", "three_tier", "external_entity"),
    "Egress": ("egress", "pools", "two_gateways", "announcement"),
    "Membership and failover": ("gossip", "bfd", "failover", "membership"),
    "NodePortLocal": ("node_port_local", "load_balancer"),
    "Services": ("proxy", "service", "takeover", "ipvs", "sctp_services", "affinity", "connections"),
    "Flow visibility": ("flow", "visibility", "recommend", "ipfix", "store", "clickhouse", "suricata"),
    "Traceflow": ("traceflow", "trace_packet"),
    "PacketCapture": ("packet_capture", "packet_filter", "docs_packets"),
    "TrafficControl": ("traffic_control",),
    "SupportBundleCollection and support bundles": ("support_bundle", "supportbundle", "bundle", "upload", "sftp"),
    "NodeLatencyMonitor": ("latency",),
    "Explain": ("explain",),
    "antctl": ("antctl", "doctor"),
    "Pod network": ("cni", "ipam", "pod", "tunnel", "no_encap", "agent", "family", "reachability", "transport", "node_route"),
    "Controller and APIs": ("controller", "admission", "crd", "aggregated", "replica", "certificate", "info", "rights"),
    "Installation and configuration": ("chart", "install", "config", "image", "upgrade", "gate"),
    "The lab": ("lab_down", "lab_command", "lab_dev", "lab_underlay", "lab_fault", "lab_cluster"),
}  # fmt: skip
INTRODUCTION = (
    "Written by `make docs` from the first lines of test modules; not edited by hand. Tests of the tier `unit` and of `parity`"
    " are not listed. How tiers are run: [testing.md](../testing.md). Last results of the wide tests:"
    " [wide-report.md](wide-report.md)."
)
OTHER = "Switch, kernel and Kubernetes clients"


@dataclass(frozen=True)
class Proof:
    """A test module: its path below tests/, what it shows, and whether only `make test-wide` runs it."""

    path: str
    sentence: str
    wide: bool

    @property
    def command(self) -> str:
        return "make test-wide" if self.wide else TIERS[self.path.split("/", 1)[0]]


def is_wide(mark: ast.expr) -> bool:
    """Return whether a decorator, or a value of `pytestmark`, contains the mark `wide`."""
    return "wide" in {node.attr for node in ast.walk(mark) if isinstance(node, ast.Attribute)}


def marked_wide(module: ast.Module) -> bool:
    """True if the module has `pytestmark` with `wide`, or each of its tests is marked so."""
    tests = []
    for node in module.body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["pytestmark"]:
            if is_wide(node.value):
                return True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            tests.append(any(map(is_wide, node.decorator_list)))
    return bool(tests) and all(tests)


def read_proof(file: Path) -> Proof:
    """Raise ValueError for a test module without a docstring."""
    module = ast.parse(file.read_text())
    path = str(file.relative_to(ROOT / "tests"))
    if not (text := ast.get_docstring(module)):
        raise ValueError(f"tests/{path} has no docstring: say in its first line what it shows")
    return Proof(path, text.splitlines()[0], marked_wide(module))


def area_of(path: str) -> str:
    """Return the section of the page for a test module, by words of its name."""
    name = Path(path).stem
    return next((area for area, words in AREAS.items() if any(word in name for word in words)), OTHER)


def page() -> str:
    """Return the page as Markdown, from the test modules of all tiers in it."""
    areas = defaultdict(list)
    for tier in TIERS:
        for file in sorted((ROOT / "tests" / tier).rglob("test_*.py")):
            proof = read_proof(file)
            areas[area_of(proof.path)].append(proof)
    lines = [
        "# What the tests show",
        "",
        INTRODUCTION,
    ]
    for area in (*AREAS, OTHER):
        lines += ["", f"## {area}", "", "| What | Test below `tests/` | Command |", "|---|---|---|"]
        lines += [
            f"| {p.sentence.replace('|', chr(92) + '|')} | {p.path} | `{p.command}` |" for p in areas[area]
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

"""Commands that the agent alone answers, and those that it answers about its own Node where the controller does for all.

Source: upstream pkg/antctl/antctl.go.
"""

from __future__ import annotations

from typing import Any

from antrea.antctl.commands import DATA_COMMANDS, SORT_BY
from antrea.features.framework.command import DataCommand, Flag

TRACE_PACKET = DataCommand(
    "",
    "trace-packet",
    "A",
    "OVS packet tracing",
    "/ovstracing",
    long="Trace the OVS flows that a packet passes, by ofproto/trace of OVS; see ovs-vswitchd(8).",
    example="  antctl trace-packet -S ns1/pod1 -D ns2/pod2\n"
    "  antctl trace-packet -S ns1/pod1 -D ns2/svc2 -f tcp,tcp_dst=80\n"
    "  antctl trace-packet -S ns1/pod1 -D 10.1.2.3 -f udp,udp_dst=1234\n"
    "  antctl trace-packet -S ns1/pod1 -D antrea-gw0\n"
    "  antctl trace-packet -p port1 -S 10.1.2.3 -D ns1/pod1\n"
    "  antctl trace-packet -p ns1/pod1 -f arp",
    flags=(
        Flag("port", "p", "where the packet enters: a port of the bridge or a local <Namespace>/<Pod>"),
        Flag("source", "S", "a <Namespace>/<Pod>, an IP address, or a port of the bridge"),
        Flag("destination", "D", "a <Namespace>/<Pod or Service>, an IP address, or a port of the bridge"),
        Flag("flow", "f", "header of the packet, such as tcp,tcp_dst=80; see ovs-fields(7)"),
        Flag("addressFamily", "F", "4 or 6; by default that of the flow or of an address, else 4"),
    ),
    form="yaml",
    shape=lambda answer, _: str(answer["result"]),
)


def _of_controller(name: str, path: str, long: str, flags: tuple[Flag, ...]) -> DataCommand:
    """The controller's command as the agent answers it."""
    row = next(row for row in DATA_COMMANDS if row.name == name)
    return row._replace(modes="A", path=path, long=long, flags=flags)


def _expires(row: dict[str, Any]) -> str:
    """2026-01-02T15:04:05Z, as Go prints a time."""
    return str(row.get("expirationTime", "")).replace("T", " ").replace("Z", " +0000 UTC")


AGENT_COMMANDS: tuple[DataCommand, ...] = (
    TRACE_PACKET,
    _of_controller(
        "networkpolicy",
        "/networkpolicies",
        "Print the policies that the controller sent to this agent.",
        (
            Flag("source", "S", "only those made of the policy of this name"),
            Flag("namespace", "n", "only those made of policies of this Namespace"),
            Flag("pod", "p", "only those that apply to this local Pod, as <Namespace>/<name>"),
            Flag("type", "T", "only those made of K8sNP, ACNP, ANNP, BANP or ANP"),
            Flag("sort-by", "", "sort by a field, such as .sourceRef.name, or by effectivePriority"),
        ),
    )._replace(
        example="  antctl get networkpolicy\n"
        "  antctl get networkpolicy 6001549b-ba63-4752-8267-30f52b4332db\n"
        "  antctl get networkpolicy -S allow-http -n ns1\n"
        "  antctl get networkpolicy -T acnp\n"
        "  antctl get networkpolicy -p ns1/pod1\n"
        "  antctl get networkpolicy --sort-by=effectivePriority"
    ),
    _of_controller(
        "appliedtogroup",
        "/appliedtogroups",
        "Print the groups of Pods of this Node that policies apply to.",
        (SORT_BY,),
    ),
    _of_controller(
        "addressgroup",
        "/addressgroups",
        "Print the groups of addresses that rules on this Node match.",
        (SORT_BY,),
    ),
    DataCommand(
        "get",
        "fqdncache",
        "A",
        "Print fqdn cache",
        "/fqdncache",
        long="Print the addresses of domain names that rules on this Node match, and until when they hold.",
        example="  antctl get fqdncache\n  antctl get fqdncache -d '*.antrea.io'",
        flags=(Flag("domain", "d", "only of this domain; * stands for any text"),),
        columns=(
            ("FQDN", lambda row: str(row.get("fqdnName", ""))),
            ("ADDRESS", lambda row: str(row.get("ipAddress", ""))),
            ("EXPIRATION TIME", _expires),
        ),
    ),
)

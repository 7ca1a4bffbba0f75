"""`antctl explain`: what policies do with a packet, by the objects of a cluster or of a support bundle, and its switches.

The answer is made on the workstation, by antrea.explain; each switch is asked by its agent, so that both can be compared.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from antrea.antctl.explain.source import Source, of_bundle, of_cluster
from antrea.antctl.explain.switch import SECONDS, SwitchVerdict, ask_agent, switches
from antrea.antctl.explain.text import text
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, output_option
from antrea.antctl.output import echo, render
from antrea.antctl.remote import AGENT_INFOS
from antrea.antctl.request import ask
from antrea.apis.shown import one_line
from antrea.errors import Invalid
from antrea.explain.address import ip
from antrea.explain.answer import answer, packet_of
from antrea.explain.l7 import request_of
from antrea.explain.packet import pod_name

if TYPE_CHECKING:
    from antrea.antctl.explain.source import Source
    from antrea.antctl.main import Target
    from antrea.antctl.request import Server
    from antrea.apis.network_policy_api.v1alpha1 import AdminNetworkPolicy
    from antrea.apis.network_policy_api.v1alpha2 import ClusterNetworkPolicy
    from antrea.explain.packet import Packet
    from antrea.explain.policy import Native

    Admin = AdminNetworkPolicy | ClusterNetworkPolicy
    from collections.abc import Iterator

    from antrea.explain.answer import Answer
    from antrea.explain.steering import SteeredPacket

REFUSED, DISAGREES = 3, 4
"""Exit codes, beside 0 for a packet that is allowed and 1 for a question without an answer."""
TEXT = """Explain what network policies do with a packet: the verdict, the rule that decides, each rule that matches and
does not decide, and why, the TrafficControls that copy or redirect it, the smallest change that would turn the verdict over,
and what the switches of the Nodes say.

It asks the cluster of the kubeconfig, or with --bundle a support bundle.

Exit code 0: the packet is allowed; 3: it is dropped or rejected; 4: the verdict of a switch differs; 1: there is no answer.

\b
Examples:
  antctl explain --from shop/web-0 --to data/db-0 --port 5432/tcp
  antctl explain --from 203.0.113.7 --to shop/web-0 --port 80/tcp -o json
  antctl explain --from shop/web-0 --to 192.0.2.53 --port icmp
  antctl explain --from shop/web-0 --to data/db --port 5432/tcp    # a Service
  antctl explain --from shop/web-0 --to 203.0.113.7 --name api.example.com --port 443/tcp
  antctl explain --from shop/web-0 --to data/api-0 --port 8080/tcp --request "GET /items"
  antctl explain --bundle support-bundles_20260102T030405Z --from shop/web-0 --to data/db-0 --port 53/udp"""
PODS, NODE = "pods", "node"
"""Sources of domain names: DNS answers to Pods, and DNS answers to the Node itself."""
CONDITIONS = ("TrafficControlPortsMissing", "TrafficControlBypassed")
MORE = re.compile(r" and \d+ more\b")
"""End of a condition's message that does not list all objects."""


def named(kubernetes: Server, source: Source, packet: Packet, *, insecure: bool) -> tuple[Packet, str]:
    """The packet with those names if any rule is on names, and why they could not be had; given ones are left."""
    sender = packet.source
    node = sender.pod.spec.node_name if sender.pod else sender.host
    if packet.destination.names or not node or not _has_names(source):
        return packet, ""
    kubernetes = kubernetes._replace(seconds=kubernetes.seconds or SECONDS)
    try:
        query = {"scope": PODS, "pod": pod_name(sender.pod)} if sender.pod else {"scope": NODE}
        rows = ask_agent(kubernetes, node, "/fqdncache", query, insecure=insecure) or ()
        known: dict[str, set[str]] = {}
        untrusted: dict[str, set[str]] = {}
        for row in rows:
            names_by_ip = untrusted if row.get("server") else known
            names_by_ip.setdefault(ip(row["ipAddress"]), set()).add(str(row["fqdnName"]))
    except (Failure, ValueError, LookupError, TypeError, AttributeError) as error:
        lack = error.message if isinstance(error, Failure) else f"its answer cannot be read: {error}"
        return packet, f"domain names, by which rules match: Node {node} could not be asked: {one_line(lack)}"
    names = {address: tuple(sorted(sources)) for address, sources in known.items()}
    there = msgspec.structs.replace(
        packet.destination, names=names.get(packet.destination.ip, ()), names_of=node
    )
    untrusted_names = tuple((address, tuple(sorted(sources))) for address, sources in untrusted.items())
    named_packet = msgspec.structs.replace(
        packet, destination=there, names=tuple(names.items()), own_names=untrusted_names
    )
    return named_packet, ""


def _has_names(source: Source) -> bool:
    """Whether any policy has a rule on names."""
    objects = source.objects
    policies: tuple[Native, ...] = (*objects.cluster_policies, *objects.policies)
    antrea_rules = (rule for policy in policies for rule in policy.spec.egress)
    if any(peer.fqdn for rule in antrea_rules for peer in rule.to):
        return True
    admins: tuple[Admin, ...] = (*objects.admin_policies, *objects.tiered_policies)
    admin = (rule for admin in admins for rule in admin.spec.egress)
    return any(getattr(peer, "domain_names", ()) for rule in admin for peer in rule.to)


def realized(kubernetes: Server, answer: Answer) -> Answer:
    """The answer with what the Nodes report of the TrafficControls that it names."""
    traffic_controls = tuple(
        _with_missing_ports(kubernetes, traffic_control) for traffic_control in answer.traffic_controls
    )
    return msgspec.structs.replace(answer, traffic_controls=traffic_controls)


def _with_missing_ports(kubernetes: Server, steered: SteeredPacket) -> SteeredPacket:
    try:
        info = ask(kubernetes, f"{AGENT_INFOS}/{steered.node}", {})
    except Failure as error:
        missing = f"Node {steered.node} could not be asked: {error.message}"
    else:
        conditions = info.get("agentConditions") or ()
        missing = "; ".join(
            message for row in conditions for message in _messages(row, steered.traffic_control)
        )
    return msgspec.structs.replace(steered, missing=one_line(missing))


def _messages(condition: dict[str, str], name: str) -> Iterator[str]:
    if condition.get("type") not in CONDITIONS or condition.get("status") != "True":
        return
    message = condition.get("message", "")
    if re.search(rf" {re.escape(name)}(?=[:;,]| and | \(|$)", message) or MORE.search(message):
        yield message


def command() -> click.Command:
    """The command `explain`."""
    flag: dict[str, Any] = {"is_flag": True}
    options: list[click.Parameter] = [
        click.Option(["-S", "--from", "source"], required=True, help="who sends: <Namespace>/<Pod> or an address"),
        click.Option(["-D", "--to", "destination"], required=True, help="who receives, in the same way, or <Namespace>/<Service>"),
        click.Option(["-p", "--port"], default="80/tcp", show_default=True, help="such as 80/tcp, 53/udp, 80/sctp, icmp, icmp/8 or icmp/3/1 (type, code)"),
        click.Option(["--source-port"], type=click.IntRange(0, 65535), default=0, help="port that the packet comes from  [default: 40000]"),
        click.Option(["-F", "--family"], type=click.Choice(["4", "6"]), help="by default IPv4 where both ends have it"),
        click.Option(["-n", "--name", "names"], multiple=True, help="domain name by which DNS gives the address of the destination, for rules on names (fqdn), in place of those that the sender's agent has; may be repeated"),
        click.Option(["--request"], default="", help="what the connection is for, for rules with l7Protocols: 'GET /cart' or 'GET http://shop.example/cart'"),
        click.Option(["--server-name"], default="", help="server name of a TLS handshake, for the same rules"),
        click.Option(["-b", "--bundle"], type=click.Path(path_type=Path), help="directory of a support bundle, or its file clusterinfo, instead of the cluster"),
        click.Option(["--no-switches"], help="do not ask agents what their switches do, and which names they have", **flag),
        click.Option(["--insecure"], help="skip TLS verification of agents", **flag),
        output_option(),
    ]  # fmt: skip
    return click.Command(
        "explain",
        context_settings=HELP,
        params=options,
        callback=_callback,
        short_help="Explain what network policies do with a packet",
        help=TEXT,
    )


def _callback(**given: Any) -> None:
    target: Target = click.get_current_context().obj
    bundle: Path | None = given["bundle"]
    try:
        source = of_bundle(bundle) if bundle else of_cluster(target.find())
        world = source.world()
        packet = packet_of(
            world,
            given["source"],
            given["destination"],
            given["port"],
            v=int(given["family"] or 0),
            source_port=given["source_port"],
            names=given["names"],
            request=request_of(given["request"], given["server_name"]),
        )
    except Invalid as error:
        raise Failure(str(error)) from error
    if not bundle and not given["no_switches"]:
        packet, lack = named(target.find(), source, packet, insecure=given["insecure"])
        source = source._replace(lacks=(*source.lacks, *filter(None, [lack])))
    explanation = answer(world, packet)
    says: list[SwitchVerdict] = []
    if not bundle and not given["no_switches"]:
        explanation = realized(target.find(), explanation)
    # packets alone do not show a switch what the request is
    if not bundle and not given["no_switches"] and packet.request is None:
        says = switches(target.find(), world, packet, explanation, insecure=given["insecure"])
    echo(_printed(explanation, says, source, given["output"]), nl=False)
    if any(verdict.agrees is False for verdict in says):
        sys.exit(DISAGREES)
    if explanation.verdict != "Allow":
        sys.exit(REFUSED)


def _printed(explanation: Any, says: list[SwitchVerdict], source: Source, form: str) -> str:
    if form == "table":
        return text(explanation, says, source)
    whole = {
        **msgspec.to_builtins(explanation),
        "switches": msgspec.to_builtins(says),
        "lacks": list(source.lacks),
    }
    return render(whole, form, (), ordered=False)

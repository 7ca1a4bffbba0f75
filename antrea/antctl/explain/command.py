"""`antctl explain`: what policies do with a packet, by the objects of a cluster or of a support bundle, and its switches.

The answer is made on the workstation, by antrea.explain; each switch is asked by its agent, so that both can be compared.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from antrea.antctl.explain.names import named
from antrea.antctl.explain.realized import realized
from antrea.antctl.explain.source import Source, of_bundle, of_cluster
from antrea.antctl.explain.switch import SwitchVerdict, switches
from antrea.antctl.explain.text import text
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, output_option
from antrea.antctl.output import render
from antrea.errors import Invalid
from antrea.explain.answer import answer, packet_of
from antrea.explain.l7 import request_of

if TYPE_CHECKING:
    from antrea.antctl.main import Target

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
    click.echo(_printed(explanation, says, source, given["output"]), nl=False)
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

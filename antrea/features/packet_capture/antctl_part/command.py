"""`antctl packetcapture`: makes a PacketCapture, waits until it is complete, and fetches its file from the agent.

parity: pkg/antctl/raw/packetcapture/command.go; a file that is not complete when the time is over is fetched, too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP
from antrea.antctl.object_name import object_name
from antrea.antctl.output import echo
from antrea.antctl.pod_exec import read_file
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.crd.packet_capture import NO_NODE, NOT_STARTED
from antrea.errors import Invalid
from antrea.features.packet_capture.antctl_part.flow import endpoint, packet

if TYPE_CHECKING:
    from antrea.antctl.main import Target

COLLECTION = "/apis/crd.antrea.io/v1alpha1/packetcaptures"
GATE = "PacketCapture"
CONFIG_MAP, AGENT_CONF = "antrea-config", "antrea-agent.conf"
DEFAULT_SECONDS, MAX_SECONDS = 60.0, 300.0
EXTRA_SECONDS = 5.0
"""On top of the capture's own time; a wait that ends earlier would lose what was captured."""
LOOK_SECONDS = 1.0
TAKEN_SECONDS = 15.0
"""In which the agent of the Pod's Node, or the controller, writes the first condition."""
COPY_SECONDS = 600.0
REQUEST_SECONDS = 10.0
DIRECTIONS = ("SourceToDestination", "DestinationToSource", "Both")
TEXT = """Capture packets of a Pod, and save them as a pcapng file here.

\b
Examples:
  antctl packetcapture -S pod1 -D pod2
  antctl packetcapture -S ns1/pod1 -D 192.168.123.123 -f udp,udp_dst=1234 -n 10
  antctl packetcapture -S pod1 -D pod2 -f tcp,tcp_dst=80,tcp_flags=+syn-ack -d Both -t 2m
  antctl packetcapture -D pod2 -f icmpv6,icmpv6_type=icmpv6-echo -o /tmp
  antctl packetcapture -S pod1 -D pod2 --nowait"""


def command() -> click.Command:
    """The command `packetcapture`."""
    options: list[click.Parameter] = [
        click.Option(["-S", "--source"], default="", help="source: <Namespace>/<Pod>, <Pod>, or an address"),
        click.Option(["-D", "--destination"], default="", help="destination, in the same way"),
        click.Option(["--namespace"], default="default", show_default=True, help="Namespace of Pods that are named without one"),
        click.Option(["-n", "--number"], type=int, default=1, show_default=True, help="packets to capture"),
        click.Option(
            ["-f", "--flow"], default="",
            help="packet headers: tcp_src, tcp_dst, tcp_flags, udp_src, udp_dst, icmp_type, icmp_code, ...",
        ),
        click.Option(["-p", "--capture-point"], default="", help="on whose Node: Source or Destination"),
        click.Option(
            ["-d", "--direction"], default=DIRECTIONS[0], show_default=True, help=f"{', '.join(DIRECTIONS)}"
        ),
        click.Option(["--nowait"], is_flag=True, help="return at once, without the file"),
        click.Option(
            ["-o", "--output-dir"], type=click.Path(path_type=Path), default=Path(), help="directory of the file"
        ),
    ]  # fmt: skip
    return click.Command(
        "packetcapture", context_settings=HELP, params=options, callback=_callback,
        short_help="Capture packets of a Pod", help=TEXT,
    )  # fmt: skip


def _callback(**given: Any) -> None:
    target: Target = click.get_current_context().obj
    seconds = target.seconds or DEFAULT_SECONDS
    if seconds > MAX_SECONDS:
        raise Failure("timeout cannot be longer than 5m0s")
    body = capture(given, int(seconds))
    server = target.kubernetes(REQUEST_SECONDS)
    name = body["metadata"]["name"]
    check_gate(server)
    if not given["nowait"]:
        check_pods(server, body["spec"])
    try:
        ask(server, COLLECTION, {}, body)
    except Failure as error:
        failure = "error when creating PacketCapture, is PacketCapture feature gate enabled?"
        raise Failure(f"{failure} {error.format_message()}") from error
    if given["nowait"]:
        echo(f"PacketCapture Name: {name}")
        return
    try:
        _fetch(server, name, seconds, given["output_dir"])
    finally:
        try:
            ask(server, f"{COLLECTION}/{name}", {}, method="DELETE")
        except Failure as error:
            echo(f"error when deleting PacketCapture: {error.format_message()}")


def capture(given: dict[str, Any], seconds: int) -> dict[str, Any]:
    """The object that these options ask for. Raises Failure."""
    default = given["namespace"]
    ends = {what: endpoint(given[what], what, default) for what in ("source", "destination") if given[what]}
    if not ends:
        raise Failure("must specify at least one of --source or --destination")
    if not any("pod" in end for end in ends.values()):
        raise Failure("one of source and destination must be a Pod")
    if given["number"] < 1:
        raise Failure("packet number should be larger than 0")
    point, direction = given["capture_point"], given["direction"]
    if direction not in DIRECTIONS:
        raise Failure(
            f'invalid direction: "{direction}", must be one of {", ".join(DIRECTIONS[:2])}, or Both'
        )
    if point not in ("", "Source", "Destination"):
        raise Failure(f'invalid capture point: "{point}", must be either Source or Destination')
    if point and "pod" not in ends.get(point.lower(), {}):
        raise Failure(f"a {point.lower()} Pod must be specified when capture-point is '{point}'")
    spec: dict[str, Any] = {
        **ends, "packet": packet(given["flow"]), "direction": direction, "timeout": seconds,
        "captureConfig": {"firstN": {"number": given["number"]}},
    }  # fmt: skip
    if point:
        spec["capturePoint"] = point
    return {
        "apiVersion": "crd.antrea.io/v1alpha1", "kind": "PacketCapture",
        "metadata": {"name": _name(given)}, "spec": spec,
    }  # fmt: skip


def check_pods(server: Server, spec: dict[str, Any]) -> None:
    """Raise Failure for a Pod that does not exist: the capture would begin when it is created. Without the right to know nothing is raised."""
    for pod in (spec[key]["pod"] for key in ("source", "destination") if "pod" in spec.get(key, {})):
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
        try:
            ask(server, path, {})
        except ErrorResponse as error:
            if error.status == 404:
                raise Failure(f"Pod {pod['namespace']}/{pod['name']} does not exist") from error


def check_gate(server: Server) -> None:
    """Raise Failure if the configuration of the agents turns the feature off. Without the right to know nothing is raised."""
    from antrea.config.agent import AgentConfig  # noqa: PLC0415 (start-up time)
    from antrea.config.load import parse  # noqa: PLC0415
    from antrea.features.framework.config_validation import accept_agent  # noqa: PLC0415

    name = f"{_namespace(server)}/{CONFIG_MAP}"
    try:
        namespace, _, plain = name.partition("/")
        data = ask(server, f"/api/v1/namespaces/{namespace}/configmaps/{plain}", {}).get("data") or {}
        is_on = GATE in accept_agent(parse(AgentConfig, data.get(AGENT_CONF, "")).config)
    except (ErrorResponse, Invalid):
        return  # not readable, or refused by the agents, which keep the configuration from before
    if not is_on:
        raise Failure(
            f"the feature gate {GATE} is off in ConfigMap {name}: set featureGates.{GATE} to true in {AGENT_CONF}"
        )


def _name(given: dict[str, Any]) -> str:
    parts = [
        given[what].replace("/", "-").replace(":", "-") for what in ("source", "destination") if given[what]
    ]
    return object_name("-".join(parts).lower(), unique=not given["nowait"])


def _fetch(server: Server, name: str, seconds: float, folder: Path) -> None:
    """Raises Failure."""
    status, condition = _complete(server, name, seconds)
    where = status.get("filePath", "")
    if where:
        pod, _, path = where.partition(":")
        try:
            namespace = _namespace(server)
            file = folder / Path(path).name
            with file.open("wb") as copy:
                read_file(
                    server, f"{namespace}/{pod}", path, copy, container="antrea-agent", seconds=COPY_SECONDS
                )
        except (Failure, OSError) as error:
            reason = error.format_message() if isinstance(error, Failure) else str(error)
            raise Failure(f"error when copying pcapng file from container: {reason}") from error
        echo(f"Captured packets file: {file}")
    if condition.get("reason") in ("Failed", "Timeout"):
        raise Failure(f"error when checking PacketCapture status: {condition.get('message', '')}")


def _complete(server: Server, name: str, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its status and the condition that ends it. Raises Failure."""
    begin = time.monotonic()
    end = begin + seconds + EXTRA_SECONDS
    why = ""
    while time.monotonic() < end:
        status = ask(server, f"{COLLECTION}/{name}", {}).get("status") or {}
        for condition in status.get("conditions", []):
            if condition["type"] == "PacketCaptureComplete" and condition["status"] == "True":
                return status, condition
            if condition.get("reason") in (NOT_STARTED, NO_NODE):
                why = f": {condition.get('message', '')}"
        if not status.get("conditions") and time.monotonic() > begin + TAKEN_SECONDS:
            raise Failure(
                f"no agent has reported on PacketCapture {name} within {TAKEN_SECONDS:g} s: "
                f"is the feature gate {GATE} on, and does the agent run on the Node of the Pod?"
            )
        time.sleep(LOOK_SECONDS)
    raise Failure(f"timeout while waiting for PacketCapture to complete{why}")


def _namespace(server: Server) -> str:
    """Where agents are. Raises Failure."""
    try:
        info = ask(server, "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller", {})
    except ErrorResponse:
        return "kube-system"
    return str(info.get("podRef", {}).get("namespace") or "kube-system")

"""`antctl traceflow`: starts a Traceflow, waits for its end, prints what it found and deletes it.

parity: pkg/antctl/raw/traceflow/command.go
"""

from __future__ import annotations

import contextlib
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP
from antrea.antctl.object_name import object_name
from antrea.antctl.output import echo, render
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.features.traceflow.antctl_part.packet import packet_of
from antrea.features.traceflow.antctl_part.prediction import add_explanation

if TYPE_CHECKING:
    from antrea.antctl.main import Target

PATH: Final = "/apis/crd.antrea.io/v1beta1/traceflows"
DEFAULT_SECONDS, MAX_SECONDS, MAX_TRACE = 10.0, 12 * 3600.0, 300
POLL: Final = 1.0
"""Seconds."""
REQUEST_SECONDS: Final = 5.0
SUCCEEDED: Final = "Succeeded"
ENDED: Final = (SUCCEEDED, "Failed")
KINDS: Final = {"pod": "pods", "service": "services"}
TEXT: Final = """Start a Traceflow from a Pod to a Pod, a Service or an address, and print what Nodes saw of the packet.

The exit code is 0 only if the Traceflow succeeded. It waits 10 seconds, or as long as --timeout says (12 hours at most; a Traceflow ends after 5 minutes at most).

\b
Examples:
  antctl traceflow -S pod1 -D pod2
  antctl traceflow -S ns1/pod1 -D 192.0.2.53
  antctl traceflow -S pod1 -D ns1/svc1 -f tcp,tcp_dst=80
  antctl traceflow -S pod1 -D pod2 -f udp,udp_dst=1234
  antctl traceflow -S pod1 -D svc1 -f tcp --live-traffic -t 1m
  antctl traceflow -D pod1 -f tcp,tcp_dst=80 --live-traffic --dropped-only -t 5m"""


def command() -> click.Command:
    """The command `traceflow`."""
    flag: dict[str, Any] = {"is_flag": True}
    options: list[click.Parameter] = [
        click.Option(["-S", "--source"], default="", help="source: Namespace/Pod, Pod, or with --live-traffic an address"),
        click.Option(["-D", "--destination"], default="", help="destination: Namespace/Pod, Pod, Namespace/Service, Service or an address"),
        click.Option(["--destination-kind"], default="", help="kind of the destination's name: pod or service; by default a Pod, or a Service if no such Pod exists"),
        click.Option(["-n", "--namespace"], default="default", show_default=True, help="Namespace of Pods and Services that are named without one"),
        click.Option(["-f", "--flow"], default="", help="headers of the packet: icmp, tcp, udp, ipv6, tcp_src=, tcp_dst=, tcp_flags=, udp_src=, udp_dst="),
        click.Option(["-L", "--live-traffic"], help="trace the first packet of real traffic that matches", **flag),
        click.Option(["--dropped-only"], help="with --live-traffic: only a packet that is dropped", **flag),
        click.Option(["--nowait"], help="start it, and neither wait for the results nor delete it", **flag),
        click.Option(["-o", "--output"], default="yaml", show_default=True, help="output type: yaml, json"),
    ]  # fmt: skip
    return click.Command(
        "traceflow",
        context_settings=HELP,
        params=options,
        callback=_callback,
        short_help="Trace a packet through the cluster",
        help=TEXT,
    )


def _callback(**given: Any) -> None:
    target: Target = click.get_current_context().obj
    seconds = target.seconds or DEFAULT_SECONDS
    if why := _refusal(given, seconds):
        raise Failure(why)
    if given["output"] not in ("yaml", "json"):
        raise Failure("output types should be yaml or json")
    server = target.kubernetes(REQUEST_SECONDS)
    trace = trace_of(server, given, seconds)
    _create(server, trace)
    if given["nowait"]:
        return
    path = f"{PATH}/{trace['metadata']['name']}"
    try:
        traceflow = _ended(server, path, seconds)
        explained = add_explanation(server, traceflow) if target.mode.name == "R" else {}
        echo(render(answer_of(traceflow, explained), given["output"], (), ordered=False), nl=False)
        status = traceflow.get("status", {})
        if status.get("phase") not in ENDED:
            raise Failure("timeout waiting for Traceflow done")
        if status["phase"] != SUCCEEDED:
            raise Failure(f"Traceflow failed: {status.get('reason') or 'without a reason'}")
    finally:
        _delete(server, path)


def _refusal(given: dict[str, Any], seconds: float) -> str:
    """Return upstream's error message for invalid options; empty if they are valid."""
    live = given["live_traffic"]
    if seconds > MAX_SECONDS:
        return "Timeout cannot be longer than 12 hours"
    if not live and not given["source"]:
        return "Please provide source"
    if not live and not given["destination"]:
        return "Please provide destination"
    if not given["source"] and not given["destination"]:
        return "One of source and destination must be a Pod"
    if given["dropped_only"] and not live:
        return "--dropped-only works only with live-traffic Traceflow"
    return ""


def trace_of(server: Server, given: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The object that the options ask for. Raises Failure."""
    default = given["namespace"]
    source, source_name = _source(given["source"], default, live=given["live_traffic"])
    destination, destination_name = _destination(
        server, given["destination"], default, wanted=given["destination_kind"]
    )
    if not source.get("pod") and not destination.get("pod"):
        raise Failure("error when filling up Traceflow config: one of source and destination must be a Pod")
    spec: dict[str, Any] = {
        "source": source,
        "destination": destination,
        "packet": packet_of(given["flow"]),
        "timeout": max(1, min(int(seconds), MAX_TRACE)),
    }
    spec |= {"liveTraffic": True} if given["live_traffic"] else {}
    spec |= {"droppedOnly": True} if given["dropped_only"] else {}
    name = f"{source_name}-to-{destination_name}".replace("::", "-").replace(":", "-")
    name = object_name(name, unique=not given["nowait"])
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Traceflow", "metadata": {"name": name}}
    return {**head, "spec": spec}


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return ""


def _source(text: str, default: str, *, live: bool) -> tuple[dict[str, str], str]:
    """Return the source fields of the spec and the source's part of the Traceflow's name."""
    if not text:
        return {}, "any"
    if address := _address(text):
        if not live:
            raise Failure(
                "error when filling up Traceflow config: source must be a Pod if not a live-traffic Traceflow"
            )
        return {"ip": address}, address
    namespace, name, called = _named(
        text, default, "source should be in the format of Namespace/Pod or Pod, or an IP address"
    )
    return {"namespace": namespace, "pod": name}, called


def _destination(server: Server, text: str, default: str, *, wanted: str) -> tuple[dict[str, str], str]:
    """Return the destination fields of the spec and its part of the name: a Pod of that name, else a Service, or of the kind `wanted`."""
    if wanted and wanted not in KINDS:
        raise Failure(f"--destination-kind: {wanted!r} is neither pod nor service")
    if not text:
        return {}, "any"
    if address := _address(text):
        return {"ip": address}, address
    namespace, name, called = _named(
        text,
        default,
        "destination should be in the format of Namespace/Pod, Pod, Namespace/Service or Service",
    )
    kind = wanted or _kind(server, namespace, name)
    return {"namespace": namespace, kind: name}, called


def _kind(server: Server, namespace: str, name: str) -> str:
    """`pod` if there is one, also where there is a Service of the same name, which stderr mentions; else `service`."""
    try:
        if not _exists(server, "pod", namespace, name):
            return "service"
    except ErrorResponse as error:
        raise Failure(
            f"error when filling up Traceflow config: failed to check if destination is Pod or Service: {error}"
        ) from error
    with contextlib.suppress(ErrorResponse):  # without the right to know there is nothing to say
        if _exists(server, "service", namespace, name):
            both = f"destination {namespace}/{name} is the name of a Pod and of a Service"
            echo(f"{both}: the Pod is traced; use --destination-kind=service for the Service", err=True)
    return "pod"


def _exists(server: Server, kind: str, namespace: str, name: str) -> bool:
    """Raises ErrorResponse."""
    try:
        ask(server, f"/api/v1/namespaces/{namespace}/{KINDS[kind]}/{name}", {})
    except ErrorResponse as error:
        if error.status == 404:
            return False
        raise
    return True


def _named(text: str, default: str, form: str) -> tuple[str, str, str]:
    """Namespace, name, and both in a name; `default` is the Namespace of a name without one."""
    parts = text.split("/")
    if len(parts) == 1:
        return default, parts[0], parts[0]
    if len(parts) != 2 or not all(parts):
        raise Failure(f"error when filling up Traceflow config: {form}")
    return parts[0], parts[1], f"{parts[0]}-{parts[1]}"


def _create(server: Server, trace: dict[str, Any]) -> None:
    try:
        ask(server, PATH, {}, trace)
    except Failure as error:
        raise Failure(
            f"error when creating Traceflow, is Traceflow feature gate enabled? {error.format_message()}"
        ) from error


def _ended(server: Server, path: str, seconds: float) -> dict[str, Any]:
    """The Traceflow once it is over, or as it is when the time is."""
    end = time.monotonic() + seconds
    while True:
        time.sleep(min(POLL, max(0.0, end - time.monotonic())))
        try:
            trace: dict[str, Any] = ask(server, path, {})
        except Failure as error:
            raise Failure(f"error when retrieving Traceflow: {error.format_message()}") from error
        if trace.get("status", {}).get("phase") in ENDED or time.monotonic() >= end:
            return trace


def _delete(server: Server, path: str) -> None:
    try:
        ask(server, path, {}, method="DELETE")
    except Failure as error:
        echo(f"error when deleting Traceflow: {error.format_message()}", err=True)


def answer_of(trace: dict[str, Any], explained: dict[str, Any]) -> dict[str, Any]:
    """Return the output for a Traceflow, with the verdicts that policies should have given."""
    spec, status = trace["spec"], trace.get("status", {})
    source, to = spec.get("source", {}), spec.get("destination", {})
    end = to.get("pod") or to.get("service")
    answer = {
        "name": trace["metadata"]["name"],
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "source": f"{source.get('namespace', '')}/{source.get('pod', '')}",
        "destination": to.get("ip") or (f"{to.get('namespace', '')}/{end}" if end else None),
        "results": status.get("results"),
        "capturedPacket": status.get("capturedPacket"),
        "explain": explained,
    }
    return {key: value for key, value in answer.items() if value}

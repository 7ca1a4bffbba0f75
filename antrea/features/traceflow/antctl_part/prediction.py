"""Verdicts that policies should give a traced packet, by the evaluator of `antctl explain`, beside those of switches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.failure import Failure
from antrea.errors import Invalid

if TYPE_CHECKING:
    from antrea.antctl.request import Server
    from antrea.explain.answer import Answer
    from antrea.explain.verdict import Half

REFUSED: Final = ("Dropped", "Rejected")
VERDICTS: Final = {"Dropped": "Drop", "Rejected": "Reject"}


def add_explanation(server: Server, trace: dict[str, Any]) -> dict[str, Any]:
    """The `explain` of the whole; each observation of a policy or a Service gets its own. Nothing where the packet is not fully known."""
    ends = _ends_of(trace["spec"])
    results = trace.get("status", {}).get("results", ())
    if ends is None or not results:
        return {}
    from antrea.antctl.explain.source import of_cluster  # noqa: PLC0415 (start-up time)
    from antrea.explain.answer import answer, packet_of  # noqa: PLC0415

    try:
        source = of_cluster(server)
        world = source.world()
        family = 6 if "ipv6Header" in trace["spec"].get("packet", {}) else 4
        explanation = answer(world, packet_of(world, *ends, v=family, source_port=0))
    except (Failure, Invalid) as error:
        return {"unanswered": str(error)}
    more: dict[str, Any] = {"path": explanation.path} if explanation.path else {}
    if source.lacks:
        more["notTakenIntoAccount"] = list(source.lacks)
    seen = [observation for result in results for observation in result.get("observations", ())]
    return _compared(explanation, seen) | more


def _ends_of(spec: dict[str, Any]) -> tuple[str, str, str] | None:
    """Source, destination and port as `antctl explain` takes them; None: no one packet is meant."""
    source, to = spec.get("source", {}), spec.get("destination", {})
    end = to.get("pod") or to.get("service")
    if not source.get("pod") or not (end or to.get("ip")):
        return None
    there = f"{to.get('namespace') or 'default'}/{end}" if end else to["ip"]
    header = spec.get("packet", {}).get("transportHeader", {})
    port = next(
        (f"{header[name].get('dstPort', 0)}/{name}" for name in ("tcp", "udp") if name in header), "icmp"
    )
    if port.startswith("0/"):
        return None
    return f"{source.get('namespace') or 'default'}/{source['pod']}", there, port


def _compared(explanation: Answer, seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the explanation, whether the switches agree, and a sentence for each observation that has one."""
    halves = [explanation.egress, explanation.ingress]
    verdict, sentence = str(explanation.verdict), explanation.sentence
    for observation in seen:
        if observation["component"] != "LB" or explanation.through is None:
            continue
        observation["explain"] = (
            f"AntreaProxy chooses one of the {explanation.through.among} of Service {explanation.through.service}"
        )
        for chosen in explanation.through.endpoints:
            if chosen.ip == observation.get("translatedDstIP"):
                halves = [chosen.egress, chosen.ingress]
                verdict, sentence = chosen.verdict, chosen.sentence
    for observation in seen:
        if half := _half(halves, observation):
            observation["explain"] = half.sentence
    ends = [
        VERDICTS[observation["action"]]
        for observation in seen
        if observation["component"] == "NetworkPolicy" and observation["action"] in REFUSED
    ]
    return {"verdict": verdict, "because": sentence, "agrees": verdict == (ends[0] if ends else "Allow")}


def _half(halves: list[Half], observation: dict[str, Any]) -> Half | None:
    """The direction that an observation of a policy is of."""
    if observation["component"] != "NetworkPolicy":
        return None
    return next((half for half in halves if half.direction in observation.get("componentInfo", "")), None)

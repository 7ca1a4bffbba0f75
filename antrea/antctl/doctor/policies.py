"""Policies that are stored and not enforced: the doctor of the whole cluster reads their statuses."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CHECK = "policies"
MOST = 20
"""Findings; the last one counts the rest."""
NOT_ENFORCED = (("Realizable", "False"), ("RealizationFailure", "True"))
"""Type and status of conditions."""
NATIVE = (
    ("/apis/crd.antrea.io/v1beta1/clusternetworkpolicies", "ClusterNetworkPolicy", "acnp"),
    ("/apis/crd.antrea.io/v1beta1/networkpolicies", "NetworkPolicy", "annp"),
)
_ADMIN = "policy.networking.k8s.io"
ADMIN = (
    (f"/apis/{_ADMIN}/v1alpha1/adminnetworkpolicies", "AdminNetworkPolicy", f"adminnetworkpolicies.{_ADMIN}"),
    (f"/apis/{_ADMIN}/v1alpha1/baselineadminnetworkpolicies", "BaselineAdminNetworkPolicy", "banp"),
    (f"/apis/{_ADMIN}/v1alpha2/clusternetworkpolicies", f"ClusterNetworkPolicy of {_ADMIN}", "cnp"),
)
"""Kinds of another API: a cluster may have none, or a gate may be off."""
JUDGED = "Realizable"


def policies(kubernetes: Server) -> list[Finding]:
    """What is not enforced; that a kind cannot be listed is a finding, that there is no such kind is none."""
    found = list(islice(_all(kubernetes), MOST + 1))
    if len(found) > MOST:
        text = f"there are more than {MOST} such policies"
        found[MOST:] = [Finding("", "error", CHECK, text, "kubectl get acnp,annp -A")]
    return found


def _all(kubernetes: Server) -> Iterator[Finding]:
    for path, kind, short in NATIVE:
        for one in _listed(kubernetes, path, kind):
            yield from one if isinstance(one, list) else _unrealizable(one, kind, short)
    for path, kind, short in ADMIN:
        for one in _listed(kubernetes, path, kind):
            yield from one if isinstance(one, list) else _admin(one, kind, short)


def _admin(found: Mapping[str, Any], kind: str, short: str) -> Iterator[Finding]:
    """One without a report of the controller is not enforced either."""
    conditions = found.get("status", {}).get("conditions", ())
    if any(one.get("type") == JUDGED for one in conditions):
        yield from _unrealizable(found, kind, short)
        return
    text = f"{kind} {found['metadata']['name']} is not enforced: antrea-controller has not read it"
    yield Finding("", "error", CHECK, text, "antctl get featuregates")


def _listed(kubernetes: Server, path: str, kind: str) -> Iterable[Any]:
    """Objects, or a list of one finding."""
    try:
        items: Iterable[Any] = ask(kubernetes, path, {})["items"]
    except ErrorResponse as why:
        if why.status == 404:
            return ()
        text = f"{kind}: cannot be listed: {why.format_message()}"
        return ([Finding("", "unknown", CHECK, text, "")],)
    return items


def _unrealizable(found: Mapping[str, Any], kind: str, short: str) -> Iterator[Finding]:
    meta = found["metadata"]
    for one in found.get("status", {}).get("conditions", ()):
        if (one.get("type"), one.get("status")) in NOT_ENFORCED:
            space = meta.get("namespace", "")
            name = f"{space}/{meta['name']}" if space else meta["name"]
            where = f"-n {space} " if space else ""
            text = f"{kind} {name} is not enforced as it is written: {one_line(one.get('message', ''))}"
            yield Finding("", "error", CHECK, text, f"kubectl {where}edit {short} {meta['name']}")

"""Who may do what: asked of kube-apiserver, remembered for a while.

parity: k8s.io/apiserver/pkg/server/options/authorization.go (groups and paths that are always allowed, TTLs)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.meta import StatusDetails
from antrea.errors import Refused, Unavailable
from antrea.outside import klog
from antrea.outside.aggregated.authentication import MASTERS
from antrea.outside.aggregated.expiring import Expiring
from antrea.outside.aggregated.status import Answered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.outside.aggregated.attributes import Attributes
    from antrea.outside.aggregated.authentication import Asker, User

log = klog.logger(__name__)

TTL_SECONDS = 10.0
"""Of a yes as of a no."""
MOST_VERDICTS = 8192


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class SubjectAccessReview(msgspec.Struct, frozen=True):
    """The part of the API server's answer that is read."""

    status: _Verdict = _Verdict()


class Authorization:
    """`open_paths` are everybody's, everything is `own`'s: another replica, which has asked for its caller.

    `kube` None: only members of system:masters may do anything else.
    """

    def __init__(self, open_paths: Iterable[str], kube: Asker | None, *, own: str = "") -> None:
        self._open = frozenset(open_paths)
        self._own = own
        self._kube = kube
        self._verdicts: Expiring[_Verdict] = Expiring(TTL_SECONDS, MOST_VERDICTS)

    def is_open(self, asked: Attributes) -> bool:
        """Whether everybody may."""
        return not asked.resource and (asked.path.rstrip("/") or "/") in self._open

    async def check(self, user: User, asked: Attributes) -> None:
        """Raises Answered: 403 with kube-apiserver's words, 503 if it cannot be asked now."""
        if self.is_open(asked) or MASTERS in user.groups:
            return
        if self._own and user.name == self._own:
            return
        key = (
            msgspec.json.encode(user),
            asked.verb,
            asked.path if not asked.resource else "",
            asked.group,
            *_named(asked),
        )
        try:
            verdict = await self._verdicts.get(key, lambda: self._review(user, asked))
        except Refused as no:
            log.warning("The API server does not let this program ask who may do what", err=no.why)
            verdict = _Verdict()
        except Unavailable as why:
            raise Answered(503, f"it cannot be asked now who may do this: {why}") from why
        if not verdict.allowed:
            raise forbidden(user, asked, verdict.reason)

    async def _review(self, user: User, asked: Attributes) -> _Verdict:
        if self._kube is None:
            return _Verdict()
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": user.groups,
            "uid": user.uid,
            "extra": user.extra,
        }
        if asked.resource:
            namespace, resource, subresource, name = _named(asked)
            spec["resourceAttributes"] = {
                "verb": asked.verb,
                "group": asked.group,
                "version": asked.version,
                "namespace": namespace,
                "resource": resource,
                "subresource": subresource,
                "name": name,
            }
        else:
            spec["nonResourceAttributes"] = {"verb": asked.verb, "path": asked.path}
        question = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer: SubjectAccessReview = await self._kube.ask(path, question, SubjectAccessReview)
        return answer.status


def _named(asked: Attributes) -> tuple[str, str, str, str]:
    return asked.namespace, asked.resource, asked.subresource, asked.name


def forbidden(user: User, asked: Attributes, reason: str = "") -> Answered:
    """403 in kube-apiserver's words."""
    tail = f": {reason}" if reason else ""
    if not asked.resource:
        return Answered(
            403,
            f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"{tail}',
            StatusDetails(),
        )
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}{tail}'
    about = (
        f'{asked.resource}.{asked.group} "{asked.name}"' if asked.name else f"{asked.resource}.{asked.group}"
    )
    details = StatusDetails(name=asked.name, group=asked.group, kind=asked.resource)
    return Answered(403, f"{about} is forbidden: {why}", details)

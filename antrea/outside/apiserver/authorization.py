"""Authorization of requests by kube-apiserver, cached for a while.

parity: k8s.io/apiserver/pkg/server/options/authorization.go (groups and paths that are always allowed, TTLs)
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.meta import StatusDetails
from antrea.errors import Refused, Unavailable
from antrea.outside.apiserver.authentication import MASTERS
from antrea.outside.apiserver.expiring import Expiring
from antrea.outside.apiserver.failure_limit import FailureLimit
from antrea.outside.apiserver.status import ApiError
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.outside.apiserver.attributes import Attributes
    from antrea.outside.apiserver.authentication import ReviewClient, User

log = klog.logger(__name__)

TTL_SECONDS = 10.0
"""Seconds for which an answer is cached, whether it allows or denies."""
MAX_VERDICTS = 8192
NOTHING: Mapping[str, frozenset[str]] = MappingProxyType({})


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class SubjectAccessReview(msgspec.Struct, frozen=True):
    """The part of the API server's answer that is read."""

    status: _Verdict = _Verdict()


class Authorization:
    """`open_paths` are everybody's; `granted` are paths that the users with these names may write to.

    `kube` None: only members of system:masters may do anything else.
    """

    def __init__(
        self,
        open_paths: Iterable[str],
        kube: ReviewClient | None,
        *,
        granted: Mapping[str, frozenset[str]] = NOTHING,
    ) -> None:
        self._open = frozenset(open_paths)
        self._granted = granted
        self._kube = kube
        self._verdicts: Expiring[_Verdict] = Expiring(TTL_SECONDS, MAX_VERDICTS)
        self._refusals = FailureLimit()

    def is_open(self, attributes: Attributes) -> bool:
        """Whether everybody may."""
        return not attributes.resource and (attributes.path.rstrip("/") or "/") in self._open

    async def check(self, user: User, attributes: Attributes, stranger: str = "") -> None:
        """Raises Answered: 403 with kube-apiserver's words, 503 if it cannot be asked now.

        `stranger` is the address of who has proved nothing: 429 if it was refused too often, each a question to the API server.
        """
        if self.is_open(attributes) or MASTERS in user.groups:
            return
        if attributes.verb in ("put", "post") and user.name in self._granted.get(attributes.path, ()):
            return
        key = (
            msgspec.json.encode(user),
            attributes.verb,
            attributes.path if not attributes.resource else "",
            attributes.group,
            *_named(attributes),
        )
        try:
            verdict = await self._verdicts.get(key, lambda: self._judged(user, attributes, stranger))
        except Refused as error:
            log.warning("Not authorized to create SubjectAccessReviews", err=error.why)
            verdict = _Verdict()
        except Unavailable as error:
            raise ApiError(503, f"it cannot be asked now who may do this: {error}") from error
        if not verdict.allowed:
            raise forbidden(user, attributes, verdict.reason)

    async def _judged(self, user: User, attributes: Attributes, stranger: str) -> _Verdict:
        if not stranger:
            return await self._review(user, attributes)
        if wait := self._refusals.reserve(stranger):
            raise ApiError(
                429, f"too many requests of {stranger} were refused, try again in {math.ceil(wait)} s"
            )
        verdict = await self._review(user, attributes)
        if verdict.allowed:
            self._refusals.cancel(stranger)
        return verdict

    async def _review(self, user: User, attributes: Attributes) -> _Verdict:
        if self._kube is None:
            return _Verdict()
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": user.groups,
            "uid": user.uid,
            "extra": user.extra,
        }
        if attributes.resource:
            namespace, resource, subresource, name = _named(attributes)
            spec["resourceAttributes"] = {
                "verb": attributes.verb,
                "group": attributes.group,
                "version": attributes.version,
                "namespace": namespace,
                "resource": resource,
                "subresource": subresource,
                "name": name,
            }
        else:
            spec["nonResourceAttributes"] = {"verb": attributes.verb, "path": attributes.path}
        question = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer: SubjectAccessReview = await self._kube.ask(path, question, SubjectAccessReview)
        return answer.status


def _named(attributes: Attributes) -> tuple[str, str, str, str]:
    return attributes.namespace, attributes.resource, attributes.subresource, attributes.name


def forbidden(user: User, attributes: Attributes, reason: str = "") -> ApiError:
    """403 in kube-apiserver's words."""
    tail = f": {reason}" if reason else ""
    if not attributes.resource:
        return ApiError(
            403,
            f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"{tail}',
            StatusDetails(),
        )
    resource = (
        f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    )
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {attributes.verb} resource "{resource}" in API group "{attributes.group}" {where}{tail}'
    about = (
        f'{attributes.resource}.{attributes.group} "{attributes.name}"'
        if attributes.name
        else f"{attributes.resource}.{attributes.group}"
    )
    details = StatusDetails(name=attributes.name, group=attributes.group, kind=attributes.resource)
    return ApiError(403, f"{about} is forbidden: {why}", details)

"""Visibility of flow records: a user sees those of the Namespaces in which kube-apiserver lets the user list flows.

`flows` of API group `flow.antrea.io` is a resource for rights alone: no kind stands behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.errors import Invalid
from antrea.outside.apiserver.attributes import Attributes
from antrea.outside.apiserver.authentication import USER
from antrea.outside.apiserver.status import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from antrea.outside.apiserver.authentication import User
    from antrea.outside.apiserver.authorization import Authorization

GROUP: Final = "flow.antrea.io"
RESOURCE: Final = "flows"
MAX_NAMESPACES: Final = 64
"""Maximum number of Namespaces of a query, since each is a request to kube-apiserver."""
_FORBIDDEN: Final = 403


class Question:
    """A query of a user: its parameters, and in `namespaces` those that it covers; None: all."""

    def __init__(self, parameters: Mapping[str, str], namespaces: tuple[str, ...] | None) -> None:
        self.parameters, self.namespaces = parameters, namespaces


async def streamed_namespaces(
    user: User, path: str, authorization: Authorization, names: Sequence[str]
) -> frozenset[str] | None:
    """Return the Namespaces whose records a stream with these names has; None: all.

    Raises ApiError: the user may not see one of them, or all where none is named.
    """
    if len(names) > MAX_NAMESPACES:
        raise Invalid("namespaces", f"are more than {MAX_NAMESPACES}")
    refusal = await _refusal(user, path, authorization, "")
    if refusal is None:
        return None
    if not names:
        message = f"{refusal.status.message}: name Namespaces in the filters"
        raise ApiError(_FORBIDDEN, message, refusal.status.details) from refusal
    for name in names:
        if refusal := await _refusal(user, path, authorization, name):
            raise refusal
    return frozenset(names)


async def question_of(request: web.Request, authorization: Authorization) -> Question:
    """Raises Invalid naming the parameter, ApiError: the user may not see one of the Namespaces."""
    parameters = dict(request.query)
    listed = parameters.pop("namespaces", "").split(",")
    names = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    if len(names) > MAX_NAMESPACES:
        raise Invalid("namespaces", f"are more than {MAX_NAMESPACES}")
    if not names:
        refusal = await _refusal(request[USER], request.path, authorization, "")
        if refusal is None:
            return Question(parameters, None)
        if not parameters.get("namespace"):
            message = f"{refusal.status.message}: name Namespaces by the parameter namespaces=NAME[,NAME...]"
            raise ApiError(_FORBIDDEN, message, refusal.status.details) from refusal
        names = (parameters["namespace"],)
    for name in names:
        if refusal := await _refusal(request[USER], request.path, authorization, name):
            raise refusal
    return Question(parameters, names)


async def _refusal(user: User, path: str, authorization: Authorization, namespace: str) -> ApiError | None:
    """403 if the user may not list flows there, or in all Namespaces; raises ApiError if that cannot be asked now."""
    attributes = Attributes("list", path, group=GROUP, resource=RESOURCE, namespace=namespace)
    try:
        await authorization.check(user, attributes)
    except ApiError as error:
        if error.status.code != _FORBIDDEN:
            raise
        return error
    return None

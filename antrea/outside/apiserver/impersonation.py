"""Requests in the name of another user: the headers Impersonate-*, which need the right `impersonate`.

parity: k8s.io/apiserver/pkg/endpoints/filters/impersonation.go
Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from antrea.outside.apiserver.attributes import Attributes
from antrea.outside.apiserver.authentication import AUTHENTICATED, User
from antrea.outside.apiserver.status import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multidict import CIMultiDictProxy

    from antrea.outside.apiserver.authorization import Authorization

USER, GROUP, UID, EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"
PREFIX: Final = "impersonate-"
AUTHENTICATION: Final = "authentication.k8s.io"
SERVICE_ACCOUNT, UNAUTHENTICATED = "system:serviceaccount:", "system:unauthenticated"
MAX_HEADERS: Final = 64
"""Each is a question to kube-apiserver."""


async def impersonated(
    headers: CIMultiDictProxy[str], user: User, authorization: Authorization, stranger: str
) -> User:
    """Return the user whom the request names, if `user` may impersonate it; without such headers `user` itself.

    `stranger` as in `Authorization.check`. Raises ApiError.
    """
    given = [name for name in headers if name.lower().startswith(PREFIX)]
    if not given:
        return user
    if len(given) > MAX_HEADERS:
        raise ApiError(400, f"more than {MAX_HEADERS} headers Impersonate-*")
    wanted = _wanted(headers)
    for question in _questions(wanted):
        await authorization.check(user, question, stranger)
    return _grouped(wanted)


def _wanted(headers: CIMultiDictProxy[str]) -> User:
    """Raises ApiError."""
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        if name.lower().startswith(EXTRA):
            key = unquote(name[len(EXTRA) :].lower())
            extra[key] = (*extra.get(key, ()), value)
        elif name.lower().startswith(PREFIX) and name.title() not in (USER, GROUP, UID):
            raise ApiError(400, f"the header {name!r} is unknown")
    user = headers.get(USER, "")
    if not user or len(headers.getall(USER)) > 1:
        raise ApiError(400, f"the headers Impersonate-* need one {USER}")
    return User(user, tuple(headers.getall(GROUP, ())), headers.get(UID, ""), extra)


def _questions(wanted: User) -> Iterator[Attributes]:
    """Yield the permissions that impersonation needs, one for each attribute of the user."""
    if account := _service_account(wanted.name):
        yield Attributes("impersonate", "", "", "v1", account[0], "serviceaccounts", account[1])
    else:
        yield Attributes("impersonate", "", "", "v1", "", "users", wanted.name)
    for group in wanted.groups:
        yield Attributes("impersonate", "", "", "v1", "", "groups", group)
    if wanted.uid:
        yield Attributes("impersonate", "", AUTHENTICATION, "v1", "", "uids", wanted.uid)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes("impersonate", "", AUTHENTICATION, "v1", "", "userextras", value, key)


def _service_account(name: str) -> tuple[str, str] | None:
    """Namespace and name, if it is one."""
    namespace, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
    return (namespace, account) if name.startswith(SERVICE_ACCOUNT) and namespace and account else None


def _grouped(wanted: User) -> User:
    """With the groups that its user always has."""
    groups = wanted.groups
    if not groups and (account := _service_account(wanted.name)):
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    everybody = UNAUTHENTICATED if wanted.name == "system:anonymous" else AUTHENTICATED
    if everybody not in groups:
        groups = (*groups, everybody)
    return User(wanted.name, groups, wanted.uid, wanted.extra)

"""Refusals as the Status objects that kubectl and client-go read.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/,
k8s.io/apimachinery/pkg/api/errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.meta import Status, StatusDetails

if TYPE_CHECKING:
    from antrea.apis.resource import Resource

REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    406: "NotAcceptable", 408: "Timeout", 409: "AlreadyExists", 413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class ApiError(Exception):
    """Ends a request with this Status; raised below a handler, never outside this package's servers."""

    def __init__(self, code: int, message: str, details: StatusDetails | None = None) -> None:
        super().__init__(message)
        self.status = Status(
            status="Failure",
            message=message,
            reason=REASONS.get(code, "InternalError"),
            details=details,
            code=code,
        )


def success(code: int = 200, details: StatusDetails | None = None) -> Status:
    """Return the Status of a success that has no object to show."""
    return Status(status="Success", details=details, code=code)


def missing(resource: Resource, name: str) -> ApiError:
    """404 of one object."""
    word = resource.missing or resource.plural
    details = StatusDetails(name=name, group=resource.group, kind=word)
    return ApiError(404, f'{word}.{resource.group} "{name}" not found', details)


NO_RESOURCE = "the server could not find the requested resource"
NO_METHOD = "the server does not allow this method on the requested resource"

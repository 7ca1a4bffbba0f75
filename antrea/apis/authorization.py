"""Asking the API server what a user may do.

Source: https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/subject-access-review-v1/
"""

from __future__ import annotations

import msgspec

from antrea.apis.core import CoreStruct

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ResourceAttributes(CoreStruct, frozen=True):
    """One request to a resource."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    group: str = ""


class SubjectAccessReviewSpec(CoreStruct, frozen=True):
    """User and attributes of the request to authorize."""

    resource_attributes: ResourceAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class SubjectAccessReviewStatus(CoreStruct, frozen=True):
    """Whether they may; the reason is for logs, not for the user who was denied."""

    allowed: bool = False
    reason: str = ""


class SubjectAccessReview(CoreStruct, frozen=True):
    """The question, and in the answer its status."""

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
    kind: str = ""
    api_version: str = ""

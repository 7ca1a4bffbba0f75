"""Requests of kube-apiserver to webhooks and their responses: AdmissionReview and ConversionReview.

Source: https://kubernetes.io/docs/reference/config-api/apiserver-admission.v1/,
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from antrea.apis.core import CoreStruct

NULL = msgspec.Raw(b"null")
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class UserInfo(CoreStruct, frozen=True):
    """The user of a request; `extra` are further attributes of the authenticator."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class AdmissionRequest(CoreStruct, frozen=True):
    """One object about to be written; `object` is null on DELETE, `old_object` on CREATE."""

    uid: str
    operation: Operation
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = NULL
    old_object: msgspec.Raw = NULL


class AdmissionStatus(CoreStruct, frozen=True):
    """Why not; the API server puts `admission webhook "NAME" denied the request: ` before `message`.

    `code` is the HTTP status of its answer, 0: its own choice, 400.
    """

    message: str
    code: int = 0


class AdmissionResponse(CoreStruct, frozen=True, omit_defaults=True):
    """Yes or no; `patch` is base64 of a JSON patch."""

    allowed: bool = msgspec.field()
    uid: str = ""
    status: AdmissionStatus | None = None
    patch: bytes = b""
    patch_type: str = ""
    warnings: tuple[str, ...] = ()


class AdmissionReview(CoreStruct, frozen=True):
    """Request body of an admission webhook: only its request is read."""

    request: AdmissionRequest | None = None


class AdmissionAnswer(CoreStruct, frozen=True, omit_defaults=False):
    """Response body of an admission webhook, always in version v1."""

    response: AdmissionResponse
    kind: str = "AdmissionReview"
    api_version: str = "admission.k8s.io/v1"


class ConversionRequest(CoreStruct, frozen=True):
    """Objects of one kind, each to be turned into `desired_api_version`, such as crd.antrea.io/v1beta1."""

    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[dict[str, Any], ...] = ()


class ConversionReview(CoreStruct, frozen=True):
    """Request body of a conversion webhook, in apiextensions.k8s.io/v1 or v1beta1."""

    request: ConversionRequest
    kind: Literal["ConversionReview"]
    api_version: Literal["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"]


class ConversionResult(CoreStruct, frozen=True):
    """Whether all objects could be converted."""

    status: Literal["Success", "Failure"]
    message: str = ""


class ConversionResponse(CoreStruct, frozen=True, omit_defaults=False):
    """The converted objects in the order asked, or None with the failure."""

    uid: str
    converted_objects: tuple[dict[str, Any], ...] | None
    result: ConversionResult


class ConversionAnswer(CoreStruct, frozen=True, omit_defaults=False):
    """Response body of a conversion webhook, in the version of the request."""

    response: ConversionResponse
    api_version: str
    kind: str = "ConversionReview"

"""Reads credentials from a Secret.

parity: pkg/util/auth/auth.go GetAuthConfigurationFromSecret
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.decoding import decode_base64, decode_text
from antrea.errors import Invalid, Refused, Unavailable

if TYPE_CHECKING:
    from antrea.outside.kube.client import Kube


class SecretData(CoreStruct, frozen=True):
    """Values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


async def secret_texts(kube: Kube, namespace: str, name: str, *keys: str) -> tuple[str, ...]:
    """The values of these keys. Raises Unavailable, in upstream's words."""
    failed = f"unable to get Secret with name {name} in Namespace {namespace}"
    try:
        secret = await kube.get(f"/api/v1/namespaces/{namespace}/secrets/{name}", SecretData)
    except Refused as error:
        raise Unavailable(f"{failed}: {error}") from error
    if secret is None:
        raise Unavailable(f'{failed}: secrets "{name}" not found')
    values = []
    for key in keys:
        if key not in secret.data:
            raise Unavailable(f'missing key "{key}" in authentication Secret {namespace}/{name}')
        try:
            values.append(decode_text(decode_base64(secret.data[key], key), key))
        except Invalid as error:
            raise Unavailable(
                f'key "{key}" in authentication Secret {namespace}/{name} is not text'
            ) from error
    return tuple(values)

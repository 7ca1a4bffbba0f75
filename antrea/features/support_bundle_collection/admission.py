"""Validation of a SupportBundleCollection: its content, its user, and until when it may change.

parity: pkg/controller/supportbundlecollection/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.support_bundle import SupportBundleCollection
from antrea.decoding import decode_text
from antrea.errors import Invalid, Unavailable
from antrea.features.framework.admission import MayGet, Warn, Webhook
from antrea.features.framework.file_server import unknown_host_warning

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps

AUTH_SECRET = "spec.authentication.authSecret"  # noqa: S105 (a path)
_FIELDS = {
    "ssh-rsa": 2,
    "ssh-dss": 4,
    "ssh-ed25519": 1,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
"""Number of strings or numbers after the name; each is a length in 4 bytes and that many bytes."""


# Source: RFC 4253 section 6.6, RFC 5656 section 3.1, RFC 8709 section 4, OpenSSH PROTOCOL.u2f
def fault(key: bytes) -> str:
    """Return why `key` is invalid; empty if it is valid."""
    try:
        name, rest = _read_string(key)
        algorithm = decode_text(name, "algorithm")
        if algorithm not in _FIELDS:
            return f"ssh: unknown key algorithm: {algorithm}"
        sizes = []
        for _ in range(_FIELDS[algorithm]):
            field, rest = _read_string(rest)
            sizes.append(len(field))
    except Invalid as error:
        return error.why
    except EOFError:
        return "ssh: short read"
    if algorithm == "ssh-ed25519" and sizes != [32]:
        return f"invalid size {sizes[0]} for Ed25519 public key"
    return "ssh: trailing junk in public key" if rest else ""


def _read_string(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string of `data`, and the rest. Raises EOFError."""
    end = 4 + int.from_bytes(data[:4])
    if len(data) < max(end, 4):
        raise EOFError
    return data[4:end], data[end:]


def validate_collection(_: Facts, review: Review[SupportBundleCollection]) -> Steps:
    """Validate a collection. Raises Invalid."""
    if review.operation == "DELETE":
        return
    if review.operation == "UPDATE":
        _check_still_open(review)
    spec = review.new.spec
    if spec.file_server.host_public_key and (why := fault(spec.file_server.host_public_key)):
        raise Invalid("spec.fileServer.hostPublicKey", f"invalid host public key: {why}")
    old = review.old.spec if review.operation == "UPDATE" and review.old is not None else None
    if old is None or old.file_server != spec.file_server:
        server, annotations = spec.file_server, review.new.metadata.annotations
        if warning := unknown_host_warning(
            "SupportBundleCollection", server.url, server.host_public_key, annotations
        ):
            yield Warn(warning)
    secret = spec.authentication.auth_secret
    if secret is None:
        return
    if not (secret.name and secret.namespace):
        raise Invalid(AUTH_SECRET, f"{AUTH_SECRET} must specify both name and namespace")
    # what was allowed when it was set needs no second question, unless it now goes elsewhere
    if old is None or (old.authentication, old.file_server) != (spec.authentication, spec.file_server):
        yield from _check_access(review, secret.namespace, secret.name)


def _check_access(review: Review[SupportBundleCollection], namespace: str, name: str) -> Steps:
    try:
        allowed = yield MayGet(namespace, name)
    except Unavailable as error:
        raise Invalid(
            AUTH_SECRET, f"failed to authorize access to authSecret {namespace}/{name}: {error}"
        ) from error
    if not allowed:
        raise Invalid(
            AUTH_SECRET,
            f'user "{review.user.username}" is not authorized to get Secret {namespace}/{name} referenced in'
            f" {AUTH_SECRET}",
        )


def _check_still_open(review: Review[SupportBundleCollection]) -> None:
    old = review.before
    true = {condition.type for condition in old.status.conditions if condition.status == "True"}
    if "Completed" in true:
        raise Invalid("spec", f"SupportBundleCollection {old.metadata.name} is completed, cannot be updated")
    if "Started" in true and old.spec != review.new.spec:
        raise Invalid("spec", f"SupportBundleCollection {old.metadata.name} is started, cannot be updated")


WEBHOOKS = (
    Webhook(
        "supportbundlecollectionvalidator.antrea.io", "/validate/supportbundlecollection",
        ("CREATE", "UPDATE", "DELETE"), "crd.antrea.io", ("v1alpha1",), "supportbundlecollections", "Cluster",
        SupportBundleCollection,
        "the host key is an SSH public key; the user has the right to read the Secret whose credentials are sent; the spec cannot be changed after the collection has started",
        validate=validate_collection, gates=("SupportBundleCollection",),
    ),
)  # fmt: skip

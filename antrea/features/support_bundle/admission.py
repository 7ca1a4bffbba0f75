"""Validation of a SupportBundleCollection: its content, its user, and until when it may change.

parity: pkg/controller/supportbundlecollection/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.support_bundle import SupportBundleCollection
from antrea.errors import Invalid, Unavailable
from antrea.features.framework.admission import MayGet, Warn, Webhook
from antrea.features.framework.file_server import unknown_host_warning
from antrea.features.support_bundle.ssh_key import fault

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps

AUTH_SECRET = "spec.authentication.authSecret"  # noqa: S105 (a path)


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
        "a host key in SSH's form; the user may read the Secret that is sent; nothing changes once it has started",
        validate=validate_collection, gates=("SupportBundleCollection",),
    ),
)  # fmt: skip

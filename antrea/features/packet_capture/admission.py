"""Authorization to have captured packets sent to a file server: only users who may read the Secret that agents use there.

parity: pkg/controller/packetcapture/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.packet_capture import PacketCapture
from antrea.errors import Invalid, Unavailable
from antrea.features.framework.admission import Installation, MayGet, Warn, Webhook
from antrea.features.framework.file_server import unknown_host_warning

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps

SECRET = "antrea-packetcapture-fileserver-auth"  # noqa: S105 (its name)


def validate_capture(facts: Facts, review: Review[PacketCapture]) -> Steps:
    """Validate a capture. Raises Invalid; Unavailable if the user's rights could not be checked."""
    server = review.new.spec.file_server
    # another Pod's packets at the same server are another matter than those that were allowed
    if server is None or (review.old is not None and review.old.spec == review.new.spec):
        return
    annotations = review.new.metadata.annotations
    if warning := unknown_host_warning("PacketCapture", server.url, server.host_public_key, annotations):
        yield Warn(warning)
    namespace = (facts.get(Installation) or Installation()).namespace
    secret = f"{namespace}/{SECRET}"
    try:
        allowed = yield MayGet(namespace, SECRET)
    except Unavailable as error:
        raise Invalid(
            "spec.fileServer",
            f"failed to authorize access to file server authentication Secret {secret}: {error}",
        ) from error
    if not allowed:
        raise Invalid(
            "spec.fileServer",
            f'user "{review.user.username}" is not authorized to get Secret {secret} used to authenticate'
            " to the file server",
        )


WEBHOOKS = (
    Webhook(
        "packetcapturevalidator.antrea.io", "/validate/packetcapture", ("CREATE", "UPDATE"), "crd.antrea.io",
        ("v1alpha1",), "packetcaptures", "Cluster", PacketCapture,
        f"to set a file server, or to change what is sent to it, the user needs the right to read the Secret {SECRET}", validate=validate_capture,
    ),
)  # fmt: skip

"""Check of the identity of a file server to which agents send a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.annotation import ACCEPT_ANY_HOST_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFIED = ("https://", "s3://")


def accepts_any_host_key(annotations: Mapping[str, str]) -> bool:
    """Return whether the user of an object accepts an SFTP server of any key where the object names none."""
    return annotations.get(ACCEPT_ANY_HOST_KEY) == "true"


def unknown_host_warning(kind: str, url: str, host_key: bytes, annotations: Mapping[str, str]) -> str:
    """Return why nothing will be uploaded, and the repair; empty if the server is known. One of HTTPS has a certificate."""
    if host_key or accepts_any_host_key(annotations) or url.lower().startswith(CERTIFIED):
        return ""
    return (
        "spec.fileServer.hostPublicKey is empty: nothing is uploaded, because any server at the address could take the password. Set it "
        f'to the key that ssh-keyscan prints for the server, or annotate the {kind} with {ACCEPT_ANY_HOST_KEY}: "true"'
    )

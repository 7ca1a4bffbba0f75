"""One try to upload a file by SFTP, with the server's key checked."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import asyncssh

from antrea.decoding import decode_text, guarded
from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from antrea.outside.upload.plan import Target, UploadOrder


async def upload(order: UploadOrder, target: Target) -> None:
    """Raises Unavailable, Invalid (the key, or credentials of another kind)."""
    where = f"{target.host}:{target.port}"
    if not order.credentials.username:
        raise Invalid("authentication.authType", "an SFTP server takes BasicAuthentication, with a username")
    known: tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]] | None = None
    if order.host_key:
        known = ([host_key(order.host_key)], [], [])
    try:
        async with (
            asyncio.timeout(order.seconds),
            asyncssh.connect(
                target.host, target.port, config=None, known_hosts=known, client_keys=None, agent_path=None,
                username=order.credentials.username, password=order.credentials.password,
                connect_timeout=order.connect_seconds, preferred_auth=("password", "keyboard-interactive"),
            ) as connection,
            connection.start_sftp_client() as client,
        ):  # fmt: skip
            await client.put(order.source, target.path)
    except asyncssh.HostKeyNotVerifiable as error:
        raise Unavailable(
            f"{where}: the server has another host key than fileServer.hostPublicKey"
        ) from error
    except asyncssh.PermissionDenied as error:
        raise Unavailable(f"{where}: the server refuses user {order.credentials.username!r}") from error
    except TimeoutError as error:
        raise Unavailable(f"{where}: no answer in time") from error
    except (asyncssh.Error, OSError) as error:
        raise Unavailable(f"{where}: {target.path}: {error}") from error


def host_key(wire: bytes) -> asyncssh.SSHKey:
    """Raises Invalid."""
    try:
        length = int.from_bytes(wire[:4])
        algorithm = decode_text(wire[4 : 4 + length], "algorithm", "ascii")
        text = f"{algorithm} {base64.b64encode(wire).decode()}"
        return guarded("key", asyncssh.import_public_key, text)
    except Invalid as error:
        raise Invalid("fileServer.hostPublicKey", f"invalid host public key: {error.why}") from error

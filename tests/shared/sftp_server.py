"""A real SFTP server, on loopback unless said otherwise, of asyncssh, with one user, whose files are in a folder.

Started as a program, with the folder, an address of this machine and perhaps a port, it prints its port and the first of its keys.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

USER, PASSWORD = "uploader", "sftp-password-1"


class _Accounts(asyncssh.SSHServer):
    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        self._asked.append(username)
        return (username, password) == (USER, PASSWORD)


class SftpServer:
    """`keys` are its host keys in SSH's wire format, `asked` the users that gave a password."""

    def __init__(
        self, folder: Path, address: str, port: int, keys: list[asyncssh.SSHKey], asked: list[str]
    ) -> None:
        self.folder, self.port, self.asked = folder, port, asked
        self._host = f"[{address}]" if ":" in address else address
        self.keys = [key.public_data for key in keys]

    def url(self, path: str = "upload") -> str:
        return f"sftp://{self._host}:{self.port}/{path}"


def new_key(algorithm: str = "ssh-ed25519") -> asyncssh.SSHKey:
    return asyncssh.generate_private_key(algorithm)


@asynccontextmanager
async def sftp_server(
    folder: Path, *algorithms: str, port: int = 0, address: str = "127.0.0.1"
) -> AsyncIterator[SftpServer]:
    """With a host key of each of these algorithms; one of ED25519 and one of RSA unless said otherwise."""
    keys = [new_key(one) for one in algorithms or ("ssh-ed25519", "ssh-rsa")]
    (folder / "upload").mkdir(parents=True, exist_ok=True)
    asked: list[str] = []
    server = await asyncssh.listen(
        address, port, server_host_keys=keys, server_factory=lambda: _Accounts(asked),
        sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=bytes(folder)), allow_scp=False,
    )  # fmt: skip
    try:
        yield SftpServer(folder, address, server.get_port(), keys, asked)
    finally:
        server.close()
        await server.wait_closed()


def secret(username: str = USER, password: str = PASSWORD) -> dict[str, object]:
    """The credentials as a Secret."""
    values = {"username": username, "password": password}
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


async def main(folder: str, address: str, port: str = "0") -> None:
    """Until it is killed."""
    async with sftp_server(Path(folder), address=address, port=int(port)) as server:
        print(server.port, base64.b64encode(server.keys[0]).decode(), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""The image of an SFTP server for upstream's suite: OpenSSH with the host keys that are mounted and the user that it is started for."""

from __future__ import annotations

import subprocess
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sftp_server import new_key

from antrea.errors import Unavailable
from antrea.outside.upload.plan import Credentials, UploadOrder, target
from antrea.outside.upload.sftp import upload
from lab import e2e_images
from lab.images import UPSTREAM_SFTP

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncssh
    from conftest import Namespaces

USER, PASSWORD = "foo", "pass"
START = 'mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'


@pytest.fixture
def keys() -> list[asyncssh.SSHKey]:
    return [new_key("ssh-ed25519"), new_key("ssh-rsa")]


@pytest.fixture
def root(netns: Namespaces, tmp_path: Path, keys: list[asyncssh.SSHKey]) -> Iterator[Path]:
    """The files of its container."""
    nothing = Path("/bin/true")
    image = next(one for one in e2e_images.standard(nothing, nothing) if UPSTREAM_SFTP in one.names)
    for layer in image.layers:
        with tarfile.open(layer.path) as tar:
            tar.extraction_filter = staticmethod(
                lambda member, _: member
            )  # which Python before 3.11.4 lacks, and does so
            tar.extractall(tmp_path)
    for name, key in zip(("ed25519", "rsa"), keys, strict=True):
        (tmp_path / f"etc/ssh/ssh_host_{name}_key").write_bytes(key.export_private_key())
        (tmp_path / f"etc/ssh/ssh_host_{name}_key").chmod(0o400)
    words = ["ip", "netns", "exec", netns.home, "sh", "-c", START, str(tmp_path)]
    words += [*image.entrypoint, f"{USER}:{PASSWORD}:::upload"]
    with subprocess.Popen(words) as server:
        deadline = time.monotonic() + 30
        while netns.run("ss -tln 'sport = 22' | grep -q LISTEN").returncode:
            assert server.poll() is None, "it has ended"
            assert time.monotonic() < deadline, "nobody listens on port 22"
        yield tmp_path
        server.kill()


def order(root: Path, key: asyncssh.SSHKey, password: str = PASSWORD) -> UploadOrder:
    credentials = Credentials(USER, password)
    source = str(root / "etc/passwd")
    return UploadOrder("sftp://127.0.0.1/upload", "users", source, credentials, key.public_data)


async def test_a_file_is_uploaded_with_either_host_key_and_with_the_password_alone(
    root: Path, keys: list[asyncssh.SSHKey]
) -> None:
    for key in keys:
        await upload(order(root, key), target("sftp://127.0.0.1/upload", "users"))
        uploaded = root / "home/foo/upload/users"
        assert uploaded.read_text() == (root / "etc/passwd").read_text()
        uploaded.unlink()
    with pytest.raises(Unavailable, match="refuses user 'foo'"):
        await upload(order(root, keys[0], "other"), target("sftp://127.0.0.1/upload", "users"))

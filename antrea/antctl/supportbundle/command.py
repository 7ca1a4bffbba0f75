"""`antctl supportbundle` in a Pod: asks its program to collect a bundle, which stays in the Pod for an hour.

parity: pkg/antctl/raw/supportbundle/command.go localSupportBundleRequest
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from antrea.antctl.failure import Failure
from antrea.antctl.mode import AGENT
from antrea.antctl.output import echo
from antrea.antctl.request import ask, save
from antrea.outside.kube.clock import FORM
from antrea.outside.kube.environment import own_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.antctl.request import Server

PATH = "/apis/system.antrea.io/v1beta1/supportbundles"
FIRST_SECONDS, AGAIN_SECONDS = 0.1, 0.5
MAX_SECONDS = 300.0
"""Timeout of a bundle, somewhat longer than the one after which a program gives up by itself."""


def begin(server: Server, name: str, since: str = "") -> None:
    """Start a collection. Raises Failure."""
    body: dict[str, Any] = {"apiVersion": "system.antrea.io/v1beta1", "kind": "SupportBundle"}
    body["metadata"] = {"name": name}
    if since:
        body["since"] = since
    ask(server, PATH, {}, body)


def wait(server: Server, name: str, sleep: Callable[[float], object] = time.sleep) -> dict[str, Any]:
    """The bundle as soon as it is collected. Raises Failure if that fails or takes too long."""
    end, pause = time.monotonic() + MAX_SECONDS, FIRST_SECONDS
    while time.monotonic() < end:
        sleep(pause)
        pause = AGAIN_SECONDS
        bundle: dict[str, Any] = ask(server, f"{PATH}/{name}", {})
        if bundle.get("status") == "Collected":
            return bundle
        if bundle.get("status") != "Collecting":
            raise Failure("somebody else ended the collection")
    raise Failure(f"the support bundle has not been collected in {MAX_SECONDS:.0f} s")


def create(path: Path) -> IO[bytes]:
    """A new file, which only its owner can read, in place of any of that name. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def download(server: Server, name: str, path: Path, sleep: Callable[[float], object]) -> None:
    """The bundle, once it is collected, whole or not at all. Raises Failure."""
    bundle = wait(server, name, sleep)
    part = path.with_name(f".{path.name}.part")
    try:
        with create(part) as file:
            save(server, f"{PATH}/{name}/download", file)
        with part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != bundle.get("sum"):
                raise Failure("the support bundle was cut off or replaced while it was downloaded")
        part.replace(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def command() -> click.Command:
    """The command `supportbundle` of a Pod."""
    return click.Command(
        "supportbundle",
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=_callback,
        short_help="Generate support bundle",
        help="Generate the support bundle of the current Antrea agent or controller.",
    )


def _callback() -> None:
    target = click.get_current_context().obj
    name, server = "agent" if target.mode is AGENT else "controller", target.find()
    begin(server, name)
    bundle = wait(server, name)
    expires = time.strptime(bundle["metadata"]["deletionTimestamp"], FORM)
    # as antrea.outside.support_bundle.server does
    folder = Path(tempfile.gettempdir()) if target.mode is AGENT else target.token_file.parent / "bundles"
    echo(f"Created bundle under {folder}")
    if path := made(folder, bundle.get("size", 0)):
        echo(f"Fetch it with: {fetching(path, name, os.environ)}")
    echo(f"Expire time: {time.strftime('%Y-%m-%d %H:%M:%S +0000 UTC', expires)}")


def made(folder: Path, size: int) -> Path | None:
    """The newest bundle in `folder` that has this many bytes."""
    files = [(path.stat(), path) for path in folder.glob("bundle_*.tar.gz")]
    fitting = [(status.st_mtime, path) for status, path in files if status.st_size == size]
    return max(fitting)[1] if fitting else None


def fetching(path: Path, name: str, environ: Mapping[str, str]) -> str:
    """The command that copies a file of this Pod to a workstation; `name` is agent or controller."""
    namespace, pod = own_namespace(environ), environ.get("POD_NAME", "")
    return f"kubectl cp -n {namespace} -c antrea-{name} {pod}:{path} {path.name}"

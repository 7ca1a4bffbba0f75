"""Where the programs of Kubernetes may come from, before Go has to build them: a folder, a release mirror."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from antrea.errors import Invalid, Unavailable
from image_build import cache
from image_build.step import Progress, step

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = "ANTREA_LAB_KUBE_BIN"
MIRROR = "ANTREA_LAB_KUBE_URL"
TIMEOUT = 30.0  # seconds without a byte


def from_folder(names: Iterable[str], progress: Progress) -> dict[str, Path]:
    """Return the programs that the folder `ANTREA_LAB_KUBE_BIN` has. Raises `Invalid` if it is not a folder."""
    named = os.environ.get(FOLDER)
    if not named:
        return {}
    folder = Path(named).absolute()
    if not folder.is_dir():
        raise Invalid(
            FOLDER, f"{named} is not a folder; name one that holds kubelet, kube-apiserver and so on"
        )
    programs = {name: folder / name for name in names if os.access(folder / name, os.X_OK)}
    progress(f"from {FOLDER}: {' '.join(programs) or 'nothing, it has none of the programs'}")
    return programs


def from_mirror(version: str, names: Iterable[str], progress: Progress) -> dict[str, Path]:
    """Return the programs that the mirror `ANTREA_LAB_KUBE_URL` has, verified and cached.

    Layout (that of the official releases): `<url>/<version>/bin/linux/amd64/<name>` with its sha256 in
    `<name>.sha256`. A program that the mirror does not know (404) is left to the next source.
    Raises `Invalid` for a wrong checksum, `Unavailable` for a mirror that does not answer.
    """
    url = os.environ.get(MIRROR)
    if not url:
        return {}
    if not re.match(r"https?://", url):
        raise Invalid(MIRROR, f"{url} is not the http(s) address of a release mirror")
    place = f"{url.rstrip('/')}/{version}/bin/linux/amd64"
    programs = {name: path for name in names if (path := _download(f"{place}/{name}", name, progress))}
    progress(f"from {MIRROR}: {' '.join(programs) or 'nothing, it has none of the programs'}")
    return programs


def _download(address: str, name: str, progress: Progress) -> Path | None:
    published = _get(f"{address}.sha256")
    if published is None:
        return None
    fields = published.decode(errors="replace").split()
    if not fields or not re.fullmatch(r"[0-9a-f]{64}", fields[0]):
        raise Invalid(MIRROR, f"{address}.sha256 holds no sha256")

    def make(part: Path) -> None:
        with step(progress, f"download {address}"):
            actual = _fetch(address, part / name)
        if actual != fields[0]:
            raise Invalid(MIRROR, f"{address} has the sha256 {actual}, its .sha256 file says {fields[0]}")
        (part / name).chmod(0o755)

    return cache.made("kube", fields[0], make) / name


def _get(address: str) -> bytes | None:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise Unavailable(f"the mirror {MIRROR} answered {error.code} for {address}") from error
    except OSError as error:
        raise Unavailable(f"the mirror {MIRROR} does not answer for {address}: {error}") from error


def _fetch(address: str, to: Path) -> str:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer, to.open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)
    except OSError as error:
        raise Unavailable(f"the mirror {MIRROR} broke off at {address}: {error}") from error
    with to.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

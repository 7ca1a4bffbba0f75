"""First module of the single file antctl (`__main__.py` in it): unpacks what this Python and platform need, once, and starts antctl.

The modules are unpacked because compiled ones cannot be imported from an archive. The folder is named by the contents of the file.
"""

import os
import platform
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 14)
NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
KUBECTL = "kubectl-antrea", "kubectl_complete-antrea"
"""Names of links to the file by which kubectl finds a plugin, and its completion."""


def parts() -> tuple[str, ...]:
    """Folders of the archive for this Python: those for all, for the platform, and for the platform with this version."""
    machine = platform.machine().lower()
    system = f"{sys.platform}-{NAMES.get(machine, machine)}"
    return "pure", system, f"{system}-cp{sys.version_info[0]}{sys.version_info[1]}"


def refusal(names: list[str]) -> str:
    """The reason why antctl cannot run here; empty if it can."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST or sys.implementation.name != "cpython":
        return f"antctl needs CPython 3.11 to 3.14, and this is {platform.python_implementation()} {platform.python_version()}"
    if missing := [part for part in parts() if not any(name.startswith(f"{part}/") for name in names)]:
        return f"this file has no compiled modules for {missing[-1]}: install antctl with pip instead"
    return ""


def unpack(archive: zipfile.ZipFile, folder: Path) -> None:
    """Write the parts for this Python into `folder`, which appears at once and whole."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent))
    for name in archive.namelist():
        if name.startswith(tuple(f"{part_name}/" for part_name in parts())):
            archive.extract(name, part)
    try:
        part.rename(folder)
    except OSError:  # another start was faster
        shutil.rmtree(part)


def cache() -> Path:
    """The folder of this user for unpacked files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antctl"


def is_safe(folder: Path) -> bool:
    """Whether nobody but this user, or root, can have written the folder."""
    state = folder.stat()
    return state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o022


def unpacked(file: Path) -> Path:
    """The folder with the modules; a temporary one where the cache cannot be used."""
    with zipfile.ZipFile(file) as archive:
        if why := refusal(archive.namelist()):
            raise SystemExit(f"Error: {why}")
        folder = cache() / f"{archive.comment.decode()}-{parts()[2]}"
        try:
            if not folder.exists():
                unpack(archive, folder)
            if is_safe(folder) and is_safe(folder.parent):
                return folder
        except OSError:
            pass
        temporary = Path(tempfile.mkdtemp(prefix="antctl-"))
        unpack(archive, temporary / "modules")
        return temporary / "modules"


def main() -> None:
    """Start antctl, or the plugin of kubectl if the file is called by its name."""
    file = Path(sys.argv[0])
    folder = unpacked(file)
    sys.path[:0] = [str(folder / part) for part in parts()]
    try:
        if file.name == KUBECTL[1]:
            from antrea.antctl.kubectl_plugin import complete as run  # noqa: PLC0415
        elif file.name == KUBECTL[0]:
            from antrea.antctl.kubectl_plugin import main as run  # noqa: PLC0415
        else:
            from antrea.antctl.main import main as run  # noqa: PLC0415
        run()
    finally:
        if folder.parent.name.startswith("antctl-"):
            shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    main()

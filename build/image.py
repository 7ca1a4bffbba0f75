"""Our product image without Docker: Debian's base, our dependencies, our source, each a layer cached by content.

    python build/image.py [--out FILE]    write an archive for `ctr images import` or `docker load`
    python build/image.py --flow-aggregator    the same with the engine of the flow aggregator's store, in a layer of its own
    python build/image.py --l7-engine     the image of the engine that judges requests for policies: Debian's Suricata
    python build/image.py --bgp-engine    the image of the engine of BGP and BFD with routers: Debian's FRR
    python build/image.py --architecture arm64    for that architecture, whose programs QEMU runs here (qemu-user-static)
    python build/image.py --describe      print the image as JSON instead: its layers stay in the cache (for the lab)

Progress goes to stderr. A change of our source costs the last layer only, a few seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import IO

import debian_root
from antrea import IMAGE, VERSION
from antrea.errors import AntreaError, Unavailable
from debian_root import PYTHON, show
from engine_core import compiled_for_debian
from image_build import cache, oci, sbom
from image_build.oci import Image, Layer
from image_build.platform import AMD64, PLATFORMS, Platform, emulated
from image_build.rootfs import Tree
from image_build.step import Command, Progress, run, step

ROOT = Path(__file__).resolve().parent.parent
HOOKS = ROOT / "build/image"
OUT = ROOT / "build/out"
LOCK = ROOT / "requirements/runtime.txt"
STORE_LOCK = ROOT / "requirements/flow-store.txt"
STORE_UNUSED = ("libpybind11nonlimitedapi_chdb_3.*.so",)  # of other versions of Python
SUITE = debian_root.SUITE
OLDER = "bookworm"  # has the nftables that Nodes can read; see build/image/sources
SITE = f"usr/local/lib/{PYTHON}/dist-packages"  # where Debian's Python looks for what Debian did not install
PACKAGES = (
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "iproute2",
    "kmod",
    "libnftables1",
    f"lib{PYTHON}-stdlib",
    "nftables",
    "openvswitch-switch",
    f"{PYTHON}-minimal",
    "systemd-standalone-sysusers",  # else systemd, for the sake of uuid-runtime
)
OPTIONS = (
    "--mode=root",
    "--variant=essential",
    "--format=tar",
    '--aptopt=APT::Install-Recommends "false"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
ENGINE_PACKAGES = ("suricata",)
BGP_ENGINE_PACKAGES = ("frr",)
UNUSED_FOLDERS = ("test", "tests")
UNUSED_SUFFIXES = (".c", ".h", ".pxd", ".pxi", ".pyi", ".pyx")
SBOM = "usr/share/antrea/sbom.cdx.json"
COMMANDS = ("antrea-agent", "antrea-controller", "antrea-flow-aggregator", "antctl")
LAUNCHER = """#!/usr/bin/python3 -sP
from sys import exit

from {module} import {function}

exit({function}())
"""


def image(progress: Progress, platform: Platform = AMD64, *, with_store: bool = False) -> Image:
    """The one image of all programs, or the flow aggregator's; raises `Unavailable` for what cannot be built now."""
    store = (engine(progress, platform),) if with_store else ()
    layers = (base(progress, platform), wheels(progress, platform), *store, source(progress, platform))
    name = f"{IMAGE}-flow-aggregator" if with_store else IMAGE
    return Image((f"{name}:v{VERSION}",), (*layers, contents(layers)), architecture=platform.architecture)


def l7_engine_image(progress: Progress, platform: Platform = AMD64) -> Image:
    """What the containers antrea-l7-engine and antrea-l7-flow-engine run; raises `Unavailable` for what cannot be built now."""
    tree = Tree()
    for script in ("run_l7_engine", "run_l7_flow_engine"):
        tree.file(f"usr/local/bin/{script}", HOOKS / script, 0o755)
    engine_base = debian(progress, platform, ENGINE_PACKAGES, "trim_l7_engine")
    layers = (engine_base, oci.layer(tree.key(), tree.write))
    name = f"{IMAGE}-l7-engine:v{VERSION}"
    return Image((name,), (*layers, contents(layers)), architecture=platform.architecture)


def bgp_engine_image(progress: Progress, platform: Platform = AMD64) -> Image:
    """What the container antrea-bgp-engine runs; raises `Unavailable` for what cannot be built now."""
    tree = Tree()
    tree.file("usr/local/bin/run_bgp_engine", HOOKS / "run_bgp_engine", 0o755)
    engine_base = debian(progress, platform, BGP_ENGINE_PACKAGES, "trim_bgp_engine")
    layers = (engine_base, oci.layer(tree.key(), tree.write))
    name = f"{IMAGE}-bgp-engine:v{VERSION}"
    return Image((name,), (*layers, contents(layers)), architecture=platform.architecture)


def base(progress: Progress, platform: Platform) -> Layer:
    """Debian's packages without documentation, perl and apt."""
    return debian(progress, platform, PACKAGES, "trim", setup="sources")


def debian(
    progress: Progress, platform: Platform, packages: tuple[str, ...], trim: str, *, setup: str = ""
) -> Layer:
    """These packages and what they depend on, made by mmdebstrap in namespaces of its own; `trim` and `setup` are hooks of it."""
    options = (*OPTIONS, *platform.debian_options)

    def write(out: IO[bytes]) -> None:
        if not shutil.which("mmdebstrap"):
            raise Unavailable("mmdebstrap is not on this machine: run scripts/bootstrap")
        with _room(out) as folder:
            tar = Path(folder) / "base.tar"
            # killed with us, and its mounts go with its namespace
            alone = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
            first = (f"--setup-hook={HOOKS / setup}",) if setup else ()
            hooks = (*first, f"--customize-hook={HOOKS / trim}")
            make = ("mmdebstrap", *options, f"--include={','.join(packages)}", *hooks, SUITE, str(tar))
            environment = {
                **os.environ,
                "SOURCE_DATE_EPOCH": "1",
                "TMPDIR": folder,
                "LC_ALL": "C.UTF-8",
                "SUITE": SUITE,
                "OLDER": OLDER,
                "PYTHON": PYTHON,
            }
            log = cache.folder() / "logs/image-base.log"
            with step(progress, f"image: {platform.architecture} Debian with {packages[-1]} (minutes, once)"):
                run(
                    Command((*alone, *emulated(platform, make)), log, env=environment), "mmdebstrap", progress
                )
            with tar.open("rb") as made:
                shutil.copyfileobj(made, out, 1 << 20)

    files = [HOOKS / name for name in (setup, trim) if name]
    return oci.layer(cache.digest(SUITE, OLDER, PYTHON, *options, *packages, *files), write)


def wheels(progress: Progress, platform: Platform) -> Layer:
    """What requirements/runtime.txt locks, installed by pip with its hashes, without tests and sources."""

    def write(out: IO[bytes]) -> None:
        with _room(out) as folder:
            _install(Path(folder), LOCK, (), platform, progress)
            _write(Path(folder), out)

    return oci.layer(cache.digest(LOCK, PYTHON, *platform.wheels, *UNUSED_SUFFIXES, *UNUSED_FOLDERS), write)


def engine(progress: Progress, platform: Platform) -> Layer:
    """What requirements/flow-store.txt locks, for the flow aggregator alone: three times the size of all else."""

    def write(out: IO[bytes]) -> None:
        with _room(out) as folder:
            _install(Path(folder), STORE_LOCK, ("--no-deps",), platform, progress)
            kept = f"_{debian_root.VERSION}.so"
            for pattern in STORE_UNUSED:
                for path in Path(folder).rglob(pattern):
                    if not path.name.endswith(kept):
                        path.unlink()
            _write(Path(folder), out)

    key = cache.digest(STORE_LOCK, PYTHON, *platform.wheels, *UNUSED_SUFFIXES, *UNUSED_FOLDERS, *STORE_UNUSED)
    return oci.layer(key, write)


def _install(
    folder: Path, lock: Path, options: tuple[str, ...], platform: Platform, progress: Progress
) -> None:
    pip = (sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
    what = ("--require-hashes", *debian_root.for_python(platform), "--target", str(folder), "-r", str(lock))
    log = cache.folder() / "logs" / f"image-{lock.stem}.log"
    with step(progress, f"image: Python packages of requirements/{lock.name}"):
        run(Command((*pip, *options, *what), log), "pip install", progress)
        _trim_wheels(folder)
        debian_root.strip(folder, platform)
        _compile(folder, "unchecked-hash")


def _write(folder: Path, out: IO[bytes]) -> None:
    tree = Tree()
    tree.copy(SITE, folder)
    tree.write(out)


def source(progress: Progress, platform: Platform) -> Layer:
    """Our package, its commands, the container scripts and the CNI plugin."""
    with tempfile.TemporaryDirectory(prefix="antrea-image-") as folder:
        package = Path(folder) / "antrea"
        shutil.copytree(ROOT / "antrea", package, ignore=shutil.ignore_patterns("__pycache__"))
        with step(progress, "image: the engine's core, compiled by mypyc (half a minute, once)"):
            shutil.copytree(compiled_for_debian(platform), package / "engine/core/compiled")
        # checked: `antrea-lab reload` changes sources in running Pods
        _compile(Path(folder), "checked-hash")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        tree = Tree()
        tree.copy(f"{SITE}/antrea", package)
        # what scanners of images read; our programs do not
        metadata = f"Metadata-Version: 2.1\nName: antrea\nVersion: {VERSION}\n"
        tree.file(f"{SITE}/antrea-{VERSION}.dist-info/METADATA", metadata.encode())
        for command in COMMANDS:
            module, function = project["scripts"][command].split(":")
            launcher = LAUNCHER.format(module=module, function=function)
            tree.file(f"usr/local/bin/{command}", launcher.encode(), 0o755)
        for script in ("install_cni", "start_ovs", "container_liveness_probe"):
            tree.file(f"usr/local/bin/{script}", HOOKS / script, 0o755)
        tree.file("usr/lib/cni/antrea", plugin(platform), 0o755)
        return oci.layer(tree.key(), tree.write)


def contents(layers: tuple[Layer, ...]) -> Layer:
    """Names and versions of all packages below."""
    tree = Tree()
    tree.file(SBOM, bill(layers))
    return oci.layer(tree.key(), tree.write)


def bill(layers: tuple[Layer, ...]) -> bytes:
    """The document on what these layers are made of; reading them takes seconds, so it is kept."""
    key = cache.digest(*(one.digest for one in layers), VERSION, Path(sbom.__file__))

    def make(part: Path) -> None:
        found = sbom.components(layers)
        (part / "sbom").write_bytes(sbom.document("antrea", VERSION, f"debian-{SUITE}", found))

    return (cache.made("sbom", key, make) / "sbom").read_bytes()


def plugin(platform: Platform) -> Path:
    """The CNI plugin, one static program (cni/Makefile)."""
    sources = [ROOT / "cni/antrea.c", ROOT / "cni/Makefile"]

    def make(part: Path) -> None:
        for path in sources:
            shutil.copy(path, part)
        command = ["make", "-C", str(part), "antrea-cni"]
        if platform.foreign:
            command.append(f"CC={platform.machine}-linux-gnu-gcc")
            with debian_root.inside(command, at=part, shown=(part,), tools=debian_root.CROSS_TOOLS) as words:
                done = subprocess.run(
                    words, capture_output=True, text=True, check=False, env=debian_root.ENVIRONMENT
                )
        else:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"the CNI plugin does not compile:\n{done.stderr}")

    key = cache.digest(*sources, *platform.debian_options)
    return cache.made("cni", key, make) / "antrea-cni"


def _room(out: IO[bytes]) -> tempfile.TemporaryDirectory[str]:
    """A folder beside a layer in the making: after a kill, the next build removes both."""
    return tempfile.TemporaryDirectory(dir=Path(out.name).parent)


def _compile(folder: Path, mode: str) -> None:
    """Byte code of everything below, by the image's Python; the same bytes each time: a fixed hash seed."""
    command = (PYTHON, "-P", "-m", "compileall", "-q", "-f", "--invalidation-mode", mode)
    where = ("-s", folder, "-p", f"/{SITE}", folder)
    with debian_root.inside((*command, *where), at=folder, shown=(folder,)) as words:
        subprocess.run(words, check=True, env=debian_root.ENVIRONMENT | {"PYTHONHASHSEED": "0"})


def _trim_wheels(folder: Path) -> None:
    """Without tests, C sources and type stubs, and without what names this machine's paths."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for path in [p for p in folder.rglob("*") if p.is_dir() and p.name in UNUSED_FOLDERS]:
        shutil.rmtree(path, ignore_errors=True)
    for path in [p for p in folder.rglob("*") if p.suffix in UNUSED_SUFFIXES]:
        path.unlink()
    for record in folder.rglob("*.dist-info/RECORD"):
        record.unlink()


def main() -> int:
    """Build the image that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the product image without Docker.")
    parser.add_argument("--out", type=Path, help="the archive (default: build/out/antrea.tar)")
    parser.add_argument(
        "--flow-aggregator", action="store_true", help="the flow aggregator's, which has its store's engine"
    )
    parser.add_argument("--l7-engine", action="store_true", help="that of the engine of L7NetworkPolicy")
    parser.add_argument("--bgp-engine", action="store_true", help="that of the engine of BGPPolicy")
    parser.add_argument("--architecture", choices=PLATFORMS, default=AMD64.architecture)
    parser.add_argument("--describe", action="store_true", help="write no archive, print the image as JSON")
    wanted = parser.parse_args()
    try:
        platform = PLATFORMS[wanted.architecture]
        if wanted.l7_engine:
            built = l7_engine_image(show, platform)
        elif wanted.bgp_engine:
            built = bgp_engine_image(show, platform)
        else:
            built = image(show, platform, with_store=wanted.flow_aggregator)
    except AntreaError as error:
        print(error, file=sys.stderr)
        return 1
    if wanted.describe:
        print(oci.encode(built))
    else:
        out = wanted.out or OUT / f"antrea{built.names[0].partition(':')[0].removeprefix(IMAGE)}.tar"
        out.parent.mkdir(parents=True, exist_ok=True)
        oci.save([built], out)
        beside = out.with_suffix(".cdx.json")
        beside.write_bytes(bill(built.layers[:-1]))
        print(f"{beside}: what it is made of, also in the image as /{SBOM}", file=sys.stderr)
        print(f"{out}: {' '.join(built.names)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

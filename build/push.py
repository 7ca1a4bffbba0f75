"""Bring the image that `make image` built to a registry: what skopeo does, with the checks that a person needs before.

    python build/push.py registry.example.com/team/antrea[:TAG] [--plain] [--authfile FILE] [--certificates DIRECTORY]
    ... --l7-engine          the image of the engine of L7NetworkPolicy, which `make l7-image` built
    ... --bgp-engine         the image of the engine of BGP and BFD with routers, which `make bgp-image` built
    ... --flow-aggregator    the flow aggregator's image with its store, which `make flow-image` built

Without TAG it is v and our version. Credentials are those of `skopeo login`, `docker login` or `podman login`, or of --authfile.
--certificates has ca.crt, or client.cert and client.key, as skopeo's --dest-cert-dir; --plain is for a registry without TLS.
Layers that the registry has are not sent again, so that a push that was interrupted goes on with the missing ones.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "build")]

from antrea import IMAGE, VERSION  # noqa: E402
from image_build.skopeo import MISSING, add_registry_options, copy_command, is_installed  # noqa: E402

OUT = ROOT / "build/out"
NAME = re.compile(
    r"[\w.-]+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+(?::(?P<tag>\w[\w.-]{0,127}))?", re.ASCII
)


def command(to: str, archive: Path, options: argparse.Namespace) -> list[str]:
    """Return the command that copies the image of the archive."""
    source = f"oci-archive:{archive}:{IMAGE}{suffix(options)}:v{VERSION}"
    return [*copy_command(options), source, f"docker://{to}"]


class Other(NamedTuple):
    """An image other than that of all programs: the target that builds it, and the value of the chart that names it."""

    target: str
    value: str


OTHERS = {
    "-flow-aggregator": Other("flow-image", "flowAggregator.image"),
    "-l7-engine": Other("l7-image", "l7Engine.image"),
    "-bgp-engine": Other("bgp-image", "bgpEngine.image"),
}
"""By what their names have after that of the one with all programs."""


def suffix(options: argparse.Namespace) -> str:
    """What the name of the image has after that of the one with all programs."""
    return next((name for name in OTHERS if getattr(options, name[1:].replace("-", "_"))), "")


def main() -> int:
    """0 if the registry has it; 2 if the user has to change something."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("to", help="registry, path and tag")
    parser.add_argument("--archive", type=Path, help="what to push (default: that of build/out)")
    for name, other in OTHERS.items():
        parser.add_argument(f"-{name}", action="store_true", help=f"the image of `make {other.target}`")
    add_registry_options(parser)
    given = parser.parse_args()
    found = NAME.fullmatch(given.to)
    if not found:
        return _refuse(f"{given.to!r} is no name such as registry.example.com/team/antrea")
    archive = given.archive or OUT / f"antrea{suffix(given)}.tar"
    if not archive.exists():
        target = OTHERS[suffix(given)].target if suffix(given) else "image"
        return _refuse(f"{archive} is not there: run `make {target}`")
    if not is_installed():
        return _refuse(MISSING)
    to = given.to if found["tag"] else f"{given.to}:v{VERSION}"
    done = subprocess.run(command(to, archive, given), check=False)
    if done.returncode:
        print(f"{to} was not pushed: skopeo says why above", file=sys.stderr)
        return 1
    value = OTHERS[suffix(given)].value if suffix(given) else "image"
    print(f"pushed {to}; to use it: --set {value}.repository={to.rpartition(':')[0]} (Helm)", file=sys.stderr)
    return 0


def _refuse(why: str) -> int:
    print(f"push: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

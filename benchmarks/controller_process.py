"""The controller program, for benchmarks that run it beside something."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarks.cni_add import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.kube_api import KubeApi

PORT = 10349
READY_SECONDS = 60.0


def define(api: KubeApi) -> None:
    """Create our CustomResourceDefinitions."""
    for file in sorted((ROOT / "build/charts/antrea/crds").glob("*.yaml")):
        definition = msgspec.yaml.decode(file.read_bytes())
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)


def controller(directory: Path, kubeconfig: Path) -> list[str]:
    config = {"apiPort": PORT, "clientConnection": {"kubeconfig": str(kubeconfig)}}
    (directory / "antrea-controller.conf").write_bytes(msgspec.yaml.encode(config))
    command = [sys.executable, "-P", "-m", "antrea.controller.main"]
    command += [f"--config={directory}/antrea-controller.conf", f"--token-file={directory}/token"]
    return [*command, f"--certificate-dir={directory}/certificates"]


def wait_ready() -> None:
    """Until its /readyz says ok."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        probe = http.client.HTTPSConnection("127.0.0.1", PORT, context=tls, timeout=5)
        with contextlib.closing(probe), contextlib.suppress(OSError, http.client.HTTPException):
            probe.request("GET", "/readyz")
            if probe.getresponse().status == 200:
                return
        time.sleep(0.1)
    sys.exit("the controller is not ready")

"""A real API server with our definitions and webhooks takes and refuses what it did with upstream's ($ANTREA_GOLDEN).

tests/parity/test_parity_admission.py lists the deliberate differences; kinds whose gate cannot be on yet are left out.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from admission_object import create
from api_client import ApiClient

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

GOLDEN = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere"))
pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not GOLDEN.is_dir(), reason="ANTREA_GOLDEN names no recorded answers"),
]
INPUTS = ("00-base", "20-groups", "30-tiers", "40-acnp", "41-annp", "50-pools-egress", "60-other")
CASES = sorted(path.stem for path in (GOLDEN / "inputs" / "reject").glob("*.yaml"))
GATES_OFF = ("ipp-", "sb-", "l7-")
BUILT = ("eg-egressips",)
"""What upstream does not support yet."""
WHOLE = ("tf-",)
"""Refused in upstream's words alone; all others name the field before them."""
NEWER = {"eip-shrink", "eip-overlap-other-pool", "cg-two-fields"}
"""Sentences that main has changed."""
DENIED = re.compile(r'admission webhook "(\S+)" denied the request: (.*)')


def recorded(case: str) -> tuple[str, str, int, str]:
    """Method, path, status and message of the bare request that was recorded."""
    text = (GOLDEN / "raw" / "reject" / f"{case}.txt").read_text()
    asked = re.search(r"^# \$ curl \.\.\. (\S+) (\S+)$", text, re.MULTILINE)
    status = re.search(r"^# < HTTP/2 (\d+)", text, re.MULTILINE)
    message = re.search(r'^  "message": "(.*)",$', text, re.MULTILINE)
    assert asked
    assert status
    said = message.group(1).replace('\\"', '"') if message else ""
    return asked.group(1), asked.group(2), int(status.group(1)), said


@pytest.fixture(scope="module")
def filled(controller: ControllerProcess) -> Iterator[dict[str, str]]:
    """What kubectl said of each file of inputs, in a cluster that then has them all."""
    lab = controller.lab
    wait_for(
        "the default Tiers",
        lambda: len(lab.api.items("/apis/crd.antrea.io/v1beta1/tiers")) == 6,
        seconds=60,
    )
    said = {}
    for name in INPUTS:
        said[name] = create(lab, (GOLDEN / "inputs" / f"{name}.yaml").read_text())
    try:
        yield said
    finally:
        for name in reversed(INPUTS):
            documents = yaml.safe_load_all((GOLDEN / "inputs" / f"{name}.yaml").read_text())
            with contextlib.suppress(Exception):
                lab.api.kubectl(
                    "delete",
                    "--ignore-not-found",
                    "--wait=false",
                    "-f",
                    "-",
                    stdin=yaml.safe_dump_all(documents),
                )


@pytest.fixture(scope="module")
def api(controller: ControllerProcess) -> Iterator[ApiClient]:
    with contextlib.closing(ApiClient(controller.lab)) as client:
        yield client


def lines(text: str) -> set[str]:
    """What kubectl said, without the remarks of the recording and what we warn of beyond upstream."""
    more = (
        "is not built yet",
        "LogLabels for Node NetworkPolicies are limited",
        "Warning: status: dropped, it does not choose a Node",
        "Warning: spec.externalIPPool: ExternalIPPool not-there does not exist: until it does",
        "ports of ExternalNodes have none: it matches nothing",
        "Warning: spec.fileServer.hostPublicKey is empty: ",
        "Warning: spec.subnetInfo.gateway: 10.50.0.1 lies in spec.ipRanges[0]: no Egress is given it",
    )
    return {
        line
        for line in text.splitlines()
        if line and not line.startswith("#") and not any(one in line for one in more)
    }


@pytest.mark.parametrize("name", [name for name in INPUTS if name != "00-base"])
def test_what_upstream_took_is_taken(filled: dict[str, str], name: str) -> None:
    assert lines(filled[name]) == lines((GOLDEN / "raw" / "apply" / f"{name}.txt").read_text())


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(GATES_OFF + BUILT)])
def test_what_upstream_refused_is_refused(filled: dict[str, str], api: ApiClient, case: str) -> None:
    method, path, status, message = recorded(case)
    text = (GOLDEN / "inputs" / "reject" / f"{case}.yaml").read_text()
    body: Any = yaml.safe_load(text)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = api.call(method, path, body, kind=kind)
    told = answer.body.get("message", "")
    theirs, ours = DENIED.search(message), DENIED.search(told)
    assert answer.status == status, told
    if theirs and case not in NEWER:
        assert ours
        why = ours.group(2) if case.startswith(WHOLE) else ours.group(2).partition(": ")[2]
        assert (ours.group(1), why) == theirs.groups()

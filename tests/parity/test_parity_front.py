"""The process that serves answers each recorded request as upstream's controller did ($ANTREA_GOLDEN): status, type, body.

It was told the objects that upstream's had computed; statistics it makes itself, of the recorded policies and of the
reports that were posted. Beside DIFFERENT, all that differs on purpose:
- `creationTimestamp: null` and `managedFields` are left out, and the kind of items of a list, which one of upstream's has, and metadata that
  are empty; lists are sorted by name, upstream's by chance;
- a member of a group is listed once, a Service not once for each of its Nodes;
- the descriptions of columns are our own words where upstream's are those of its API machinery.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
import yaml
from recorded_world import world

from antrea.controller.front_process import FrontProcess, Publisher, publish_empty
from antrea.controller.stores import ROWS
from antrea.controller.wire import Start
from antrea.engine import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable

RAW = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere")) / "raw"
pytestmark = pytest.mark.skipif(not RAW.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")

STATS = ("multicastgroups", "nodelatencystats")
GROUPS = ("addressgroups", "appliedtogroups", "egressgroups", "networkpolicies")
TOLD = {
    "controlplane": [f"controlplane/{plural}.json" for plural in GROUPS] + ["system/controllerinfos.json"],
    "alpha-controlplane": [f"alpha-controlplane/{plural}.json" for plural in GROUPS],
    "before": ["controlplane/networkpolicies.json", *(f"stats/{plural}.before.json" for plural in STATS)],
    "after": ["controlplane/networkpolicies.json", *(f"stats/{plural}.after.json" for plural in STATS)],
}
"""By a moment of the recording, the lists of what upstream's had computed then."""
GONE = "same-peer-twice"
"""A policy that was deleted between these lists and the statistics."""
COUNTED = r"stats/(\w+policystats|acnpstats|annpstats)\."
"""Recordings whose times are when counting began: the controller's own."""
ASKED = {
    "controlplane": "controlplane/*.json controlplane/*.one.yaml system/*.json http/* agent/status.*.json",
    "alpha-controlplane": "alpha-controlplane/*.json alpha-controlplane/*.one.yaml",
    "before": "stats/*.before*.json",
    "groups": "groups/*.json",
    "after": "stats/*.after*.json stats/post-*.json stats/*.one.json stats/*.one.yaml stats/*.miss.txt",
}
REASONS = {"NotFound": 404, "BadRequest": 400, "Forbidden": 403, "InternalError": 500}


class Difference(NamedTuple):
    """What differs on purpose: recordings by pattern, why, and what we answer: status, type, and a pattern of the body."""

    recordings: str
    why: str
    status: int
    type: str
    body: str


DIFFERENT = (
    Difference(
        r"http/(featuregates\.json|loglevel\.txt)",
        "JSON says that it is JSON; the gates and the level are those of the program that answers",
        200,
        "application/json",
        r"^(\[.*\]|\d+)\s*$",
    ),
    Difference(
        r"http/version\.json",
        "the version is ours",
        200,
        "application/json",
        r'^{"major":"\d+","minor":"\d+","gitVersion":"v[^"]+","gitCommit":"[^"]*","gitTreeState":"[^"]*",'
        r'"buildDate":"[^"]*","goVersion":"","compiler":"","platform":""}\s*$',
    ),
    Difference(
        r"http/(healthz|livez|readyz)\.verbose\.txt",
        "upstream's checks are those of Go's API machinery",
        200,
        "text/plain",
        r"^\[\+\]ping ok\n(\[\+\]\w+ ok\n)*(healthz|livez|readyz) check passed\n$",
    ),
    Difference(
        r"http/root\.json",
        "upstream's health has a path for each check, its metrics one of service levels; its webhooks need an API server here",
        200,
        "application/json",
        r'^{"paths":\["/apis","/apis/controlplane.antrea.io",',
    ),
    Difference(
        r"http/endpoint\.(json|miss)", "it looks the Pod up in the API server, of which there is none here", 503,
        "application/json", '"reason":"ServiceUnavailable"',
    ),
    Difference(
        r"(controlplane|alpha-controlplane)/\w+\.node-n\d\.json",
        "lists obey the field selectors that watches obey, and no Node needs what was told here",
        200,
        "application/json",
        r'"items":\[\]',
    ),
    Difference(
        r"groups/\w+members(\.data)?\.c?g-none\.json",
        "a group that does not exist is not found; upstream's says that something went wrong in it",
        404,
        "application/json",
        r'members.controlplane.antrea.io \\"c?g-none\\" not found"',
    ),
    Difference(
        r"groups/ipgroupassociations\.bad\.json",
        "it says which text is no address",
        400,
        "application/json",
        '"IP not-an-ip is not a valid IP address"',
    ),
    Difference(
        r"supportbundlecollections\.(json|Table|node|externalnode)",
        "collections over Nodes are not built yet",
        200,
        "application/json",
        r'"(items|rows)":\[\]',
    ),
)  # fmt: skip


def matching(patterns: str) -> list[str]:
    """Recordings; metrics are compared elsewhere."""
    found = {str(file.relative_to(RAW)) for one in patterns.split() for file in RAW.glob(one)}
    return sorted(name for name in found if not name.startswith("http/metrics."))


class Request(NamedTuple):
    """What the recorded command asks for."""

    method: str
    path: str
    accept: str
    body: str
    anonymous: bool


class Answer(NamedTuple):
    status: int
    type: str
    body: str


def asked(name: str) -> Request:
    """By the command in the first line of a recording."""
    line = (RAW / name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# $ ")
    program, *words = shlex.split(line)
    accept = next(
        (word.partition(": ")[2] for word in words if word.startswith("Accept: ")), "application/json"
    )
    if program == "curl":
        url = urlsplit(next(word for word in words if word.startswith("https://")))
        path = url.path + (f"?{url.query}" if url.query else "")
        body = words[words.index("--data-binary") + 1] if "--data-binary" in words else ""
        return Request("POST" if body else "GET", path, accept, body, "--cert" not in words)
    if "--raw" in words:
        return Request("GET", words[words.index("--raw") + 1], accept, "", anonymous=False)
    return Request("GET", _path(words[1:]), accept, "", anonymous=False)


def _path(words: list[str]) -> str:
    """Of what `kubectl get RESOURCE [-n NAMESPACE] NAME` gets."""
    space = f"namespaces/{words[words.index('-n') + 1]}/" if "-n" in words else ""
    within = words.index("-n") if "-n" in words else len(words)
    plain = [
        word for at, word in enumerate(words) if at not in (within, within + 1) and word not in ("-o", "yaml")
    ]
    plural, name = plain[0].partition(".")[0], plain[1]
    row = next(row for (_, one), row in ROWS.items() if one == plural)
    return f"/apis/{row.group}/{row.version}/{space}{plural}/{name}"


def recorded(name: str) -> Answer:
    """What upstream's answered; of what kubectl printed, the status that it stands for."""
    lines = (RAW / name).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    if failed := re.search(r"(?m)^Error from server \((\w+)\): (.*)$", text):
        return Answer(REASONS[failed[1]], "application/json", json.dumps({"message": failed[2]}))
    head, _, body = text.partition("\n\n") if text.startswith("HTTP/2") else ("\n".join(lines), "", text)
    status = int((re.search(r"HTTP/2 (\d+)", head) or ["", "200"])[1])
    kind = re.search(r"content-type: ([\w/+-]+)", head)
    return Answer(status, kind[1] if kind else "application/json", body)


def plain(found: Any) -> Any:
    """Without what differs in all recordings, and in an order of its own."""
    if isinstance(found, dict):
        kept = {key: plain(value) for key, value in found.items() if key != "managedFields"}
        if kept.get("creationTimestamp", "") is None:
            del kept["creationTimestamp"]
        kept.pop("description", None)
        for item in kept["items"] if str(kept.get("kind", "")).endswith("List") else ():
            item.pop("kind", None)
            item.pop("apiVersion", None)
        for key in ("items", "rows", "groupMembers", "effectiveMembers", "associatedGroups"):
            if isinstance(kept.get(key), list):
                one = {json.dumps(item, sort_keys=True): item for item in kept[key]}
                kept[key] = [one[text] for text in sorted(one)]
        return kept
    return [plain(one) for one in found] if isinstance(found, list) else found


def tell(publisher: Publisher, names: Iterable[str], *, everything: bool) -> None:
    for name in names:
        folder, plural = name.split("/")[0], name.split("/")[1].split(".")[0]
        row = next(row for (_, one), row in ROWS.items() if one == plural)
        items = plain(json.loads(recorded(name).body))["items"]
        for item in items:
            meta = item["metadata"]
            if item.get("sourceRef", {}).get("name") == GONE and not everything:
                continue
            key = (
                f"{meta['namespace']}/{meta['name']}"
                if meta.get("namespace") and folder == "stats"
                else meta["name"]
            )
            publisher.put(row.group, plural, key, msgspec.convert(item, row.struct))


async def answers() -> dict[str, Answer]:
    """Of one front to all recorded requests, moment by moment."""
    found: dict[str, Answer] = {}
    for moment, patterns in ASKED.items():
        names = matching(patterns)
        facts, engine = world() if moment == "groups" else (Facts(), None)
        if engine:
            engine.plan()
        front = FrontProcess(facts)
        with tempfile.TemporaryDirectory() as directory:
            token = Path(directory) / "token"
            publisher = await front.start(
                Start(
                    port=0, token_file=str(token), verbosity=2, gates=(), certificate_file=f"{directory}/none"
                )
            )
            answering = asyncio.ensure_future(front.run())
            try:
                tell(publisher, TOLD.get(moment, ()), everything=moment not in ("before", "after"))
                publish_empty(publisher)
                async with aiohttp.ClientSession(
                    f"https://127.0.0.1:{front.port}", connector=aiohttp.TCPConnector(ssl=_anyone())
                ) as session:
                    # what is shown in the end has been posted before
                    for name in sorted(names, key=lambda name: "/post-nodestats" not in name):
                        found[name] = await answer(session, token.read_text(), asked(name))
            finally:
                answering.cancel()
                await front.stop()
    return found


async def answer(session: aiohttp.ClientSession, token: str, request: Request) -> Answer:
    headers = {"Accept": request.accept, "Content-Type": "application/json"} | (
        {} if request.anonymous else {"Authorization": f"Bearer {token}"}
    )
    data = request.body.encode() or None
    async with session.request(request.method, request.path, headers=headers, data=data) as said:
        return Answer(said.status, said.content_type, await said.text())


def _anyone() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _without_times(text: str) -> str:
    return re.sub(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"', '"then"', text)


@pytest.fixture(scope="module")
def ours() -> dict[str, Answer]:
    return asyncio.run(answers())


@pytest.mark.parametrize("name", [name for patterns in ASKED.values() for name in matching(patterns)])
def test_parity_front_answers_as_upstreams(name: str, ours: dict[str, Answer]) -> None:
    mine, theirs = ours[name], recorded(name)
    for known in DIFFERENT:
        if re.search(known.recordings, name):
            assert (mine.status, mine.type) == (known.status, known.type), mine
            assert re.search(known.body, mine.body), mine.body[:500]
            return
    assert (mine.status, mine.type) == (theirs.status, theirs.type)
    if theirs.type == "text/plain":
        assert mine.body.strip() == theirs.body.strip()
        return
    bodies = theirs.body, mine.body
    if re.match(COUNTED, name):
        bodies = _without_times(theirs.body), _without_times(mine.body)
    wanted = plain((yaml.safe_load if name.endswith(".yaml") else json.loads)(bodies[0]))
    shown = plain(json.loads(bodies[1]))
    if asked(name).body:
        for one in (shown, wanted):
            one.setdefault("metadata", {}).pop("creationTimestamp", None)  # of now, and of then
    assert ({"message": shown["message"]} if wanted.keys() == {"message"} else shown) == wanted

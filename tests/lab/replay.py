"""Do in the lab what was done in the recorded cluster ($ANTREA_GOLDEN), and ask there what was asked of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import recorded_cluster
from api_client import ApiClient
from recording import RAW, SERVER_PORT, Recording, Request, answers, renamed, request, shown
from replay_difference import not_asked, reduced, rows

from lab import control_plane as plane

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller_process import ControllerProcess

CHANGES = ("annotate", "create", "delete", "label", "patch", "scale")
READS = ("get", "describe")
FAILED = re.compile(r"Error from server(?: \((\w+)\))?: (.*)", re.DOTALL)
SETTLE_SECONDS = 20.0
"""At most, for answers that are to become what was recorded."""


class Answer(NamedTuple):
    """What failed has a reason of Kubernetes' API and its message; else there is a body, in a form to compare."""

    reason: str
    body: Any


def recorded(one: Recording) -> Answer:
    """What upstream's controller answered."""
    if found := FAILED.search(one.stderr):
        return Answer(found[1] or "", found[2].strip())
    return of_http(one.code if request(one.words) else 0, one.body)


def of_http(code: int, text: str) -> Answer:
    """Of an answer by HTTP: a Status of Kubernetes, or another text."""
    if code < 400:
        return Answer("", shown(text))
    try:
        found = json.loads(text)
    except ValueError:
        return Answer(str(code), text.strip())
    return Answer(found.get("reason", str(code)), found.get("message", ""))


def changes(one: Recording) -> bool:
    """Whether the recorded command changed the cluster, and says all of how."""
    if one.words[0] == "kubectl":
        return one.words[1] in CHANGES and not {"-", "-f", "--all"}.intersection(one.words)
    asked = request(one.words)
    return bool(asked and asked.method != "GET" and "evaluation" not in asked.path)


def commands(folder: str) -> list[Recording]:
    """The changing ones of files that list several, one after the other."""
    lines = [line for file in sorted((RAW / folder).glob("*.txt")) for line in file.read_text().splitlines()]
    found = [
        tuple(shlex.split(line.removeprefix("# $ "))) for line in lines if line.startswith("# $ kubectl ")
    ]
    return [one for one in (Recording(folder, words, 0, "", "") for words in found) if changes(one)]


def reads(one: Recording) -> bool:
    """Whether the recorded command asked something that can be asked here."""
    if not_asked(one):
        return False
    if one.words[0] == "kubectl":
        return one.words[1] in READS
    asked = request(one.words)
    return bool(asked and not changes(one))


def agrees(one: Recording, given: list[Answer]) -> bool:
    """Whether one of our answers is as recorded, but for the known differences."""
    if wanted := next((row.ours for row in rows(one) if row.ours), ""):
        return any(re.search(wanted, f"{found.reason}: {found.body}", re.DOTALL) for found in given)
    theirs = reduced(one, recorded(one))
    return any(reduced(one, found) == theirs for found in given)


class Replay:
    """The lab whose controller answers; UIDs are exchanged on the way there and back. `given` are its answers by recording."""

    def __init__(self, controller: ControllerProcess) -> None:
        self._controller, self._lab = controller, controller.lab
        self.api = ApiClient(controller.lab)
        self._theirs: dict[str, str] = {}
        self.given: dict[str, list[Answer]] = {}

    def close(self) -> None:
        """End the connection to the API server."""
        self.api.close()

    def same_uids(self) -> None:
        """To be called when all objects are there."""
        self._theirs = recorded_cluster.uids(self.api)

    def do(self, one: Recording) -> Answer:
        """Our answer to the same command, with UIDs as they were recorded."""
        ours = {theirs: mine for mine, theirs in self._theirs.items()}
        words = tuple(renamed(word, ours) for word in one.words)
        if asked := request(words):
            code, text = self._http(asked)
            return of_http(code, renamed(text, self._theirs))
        return self._kubectl(words)

    def ask(self, folder: str) -> None:
        """All that was asked in a phase."""
        self.settle([one for one in answers(folder) if reads(one)])

    def settle(self, asked: list[Recording], seconds: float = SETTLE_SECONDS) -> list[Recording]:
        """Ask until all answers are as recorded, or too long; returns those that are not."""
        end, missing = time.monotonic() + seconds, asked
        while missing:
            for one in missing:
                self.given.setdefault(one.name, []).append(self.do(one))
            missing = [one for one in missing if not agrees(one, self.given[one.name])]
            if time.monotonic() > end:
                break
        return missing

    def act(self, folder: str, seconds: float = 3.0) -> None:
        """Do what a phase did, in the order of names, and deletions last; what it asked has to be answered as recorded at one time or other."""
        found = answers(folder)
        asked = [one for one in found if reads(one)]
        commands = [one.words for one in asked]
        # what was asked twice was asked before all changes, too
        twice = [one for one in asked if commands.count(one.words) > 1]
        pending = self.settle(twice, seconds) + [one for one in asked if one not in twice]
        for one in sorted(filter(changes, found), key=lambda one: "delete" in one.words):
            self.given[one.name] = [self.do(one)]
            pending = self.settle(pending, seconds)
        self.settle(pending)

    def steps(self, folder: str) -> None:
        """Do each step of a phase, whose files have the number of the step before their first dot, and ask what was asked then."""
        groups: dict[tuple[int, str], list[Recording]] = {}
        for one in answers(folder):
            step = one.name.rpartition("/")[2].partition(".")[0]
            groups.setdefault((len(step), step), []).append(one)
        for _, found in sorted(groups.items()):
            for one in found:
                if changes(one):
                    self.given[one.name] = [self.do(one)]
            self.settle([one for one in found if reads(one)])

    def _http(self, asked: Request) -> tuple[int, str]:
        if asked.port == SERVER_PORT:
            body = json.dumps(asked.body) if asked.body else None
            headers = {"Accept": asked.accept, "Content-Type": "application/json"}
            self.api.request(asked.method, asked.path, body, headers)
            found = self.api.getresponse()
            return found.status, found.read().decode()
        files = plane.pki(self._lab.record)
        own = ["--cert", f"{files}/admin.crt", "--key", f"{files}/admin.key"] if asked.certified else []
        text = self._controller.curl(*own, "-w", "\n%{http_code}", path=asked.path)
        body, _, code = text.rpartition("\n")
        return int(code), body

    def _kubectl(self, words: Iterable[str]) -> Answer:
        command = self._lab.api.command([*words][1:])
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if found := FAILED.search(done.stderr):
            return Answer(found[1] or "", renamed(found[2].strip(), self._theirs))
        return Answer("", shown(renamed(done.stdout, self._theirs)))

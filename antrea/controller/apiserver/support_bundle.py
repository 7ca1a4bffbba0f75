"""Contents of the controller's support bundle, in upstream's files where it has the same.

Objects are printed by antctl, in a process of its own, from this process's API: they may be many.
parity: pkg/support/dump.go (controllerDumper). Files of our own: featuregates, antrea-controller.conf, memory and
stacks (for memprofile and goroutinestacks).
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from antrea.config.controller import ControllerConfig
from antrea.outside.support_bundle.plan import Command, Logs, Order
from antrea.outside.support_bundle.server import memory, stacks

if TYPE_CHECKING:
    from pathlib import Path

    import msgspec

    from antrea.outside.apiserver.objects import Computes, Question
    from antrea.outside.support_bundle.server import SupportBundles

LOG_DIRECTORY = "/var/log/antrea"
SHOWN = ("networkpolicies", "appliedtogroups", "addressgroups", "controllerinfo", "featuregates")
"""Commands of `antctl get`, and files."""
AS_CONTROLLER = {"POD_NAME": "antrea-controller"}
"""The name by which antctl finds the program to query."""


async def contents(port: int, token_file: Path, log_directory: str = LOG_DIRECTORY) -> Order:
    """A bundle of the controller that serves at `port`, as it is now."""
    documents = {"memory": memory(), "stacks": stacks()}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        # the configuration in effect is kept there
        kept = token_file.with_name(f"{ControllerConfig.file}.good")
        documents[ControllerConfig.file] = kept.read_text(encoding="utf-8")
    return Order(
        target=os.devnull,
        documents=documents,
        commands=tuple(_shown(noun, port, token_file) for noun in SHOWN),
        logs=(Logs("logs/controller", log_directory, "antrea-controller"),),
    )


def _shown(noun: str, port: int, token_file: Path) -> Command:
    antctl = (sys.executable, "-P", "-m", "antrea.antctl.main")
    where = (f"--server=127.0.0.1:{port}", f"--token-file={token_file}")
    form = () if noun == "featuregates" else ("--output=yaml",)
    return Command(noun, (*antctl, *where, "get", noun, *form), AS_CONTROLLER)


class BundleIntake:
    """Answers questions about support bundles itself; all others are for the program that computes."""

    def __init__(self, bundles: SupportBundles, computing: Computes) -> None:
        self._bundles = bundles
        self._computing = computing

    async def answer(self, question: Question) -> msgspec.Struct:
        """Raises Answered, Unavailable."""
        bundles = self._bundles if question.resource == "supportbundles" else self._computing
        return await bundles.answer(question)

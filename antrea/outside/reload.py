"""Runs a program in one process through changes of its configuration, and tells its user what became of each.

The program is built for one configuration and ended when another is in effect; agents and the controller are made so
that nothing is lost in between.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from antrea.errors import AntreaError, Invalid, Unavailable
from antrea.outside import klog
from antrea.outside.config_map import contents
from antrea.outside.environment import own_config_map
from antrea.outside.voice import Outbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from antrea.config.effect import InEffect
    from antrea.outside.configuration import Configuration
    from antrea.outside.kube import Kube
    from antrea.outside.voice import Voice

E = TypeVar("E", bound=AntreaError)
log = klog.logger(__name__)
PROOF_SECONDS = 30.0
"""How long a changed configuration may take until the program works with it, before it is taken back."""
LOOK_SECONDS = 1.0
TRIES, PAUSE_SECONDS = 3, 1.0
"""How often a program is built for a changed configuration while that cannot go on for another reason."""

ACCEPTED = "ConfigAccepted"


async def nothing() -> None:
    """To be done."""


class Running(NamedTuple):
    """A program that runs with one configuration."""

    work: Coroutine[Any, Any, None]
    """Its life. Raises Invalid for a configuration that it finds it cannot work with."""
    ready: Callable[[], Awaitable[object]]
    """Returns once it works."""
    waiting: Callable[[], str]
    """What it still waits for."""
    kube: Kube | None
    """Where the ConfigMap is; None: nowhere."""
    heard: Callable[[], None] = lambda: None
    """Called when a new text was taken or refused."""
    farewell: Callable[[], Awaitable[None]] = nothing
    """What it does while it still works, once the process is asked to end."""
    blameless: Callable[[], bool] = lambda: False
    """Whether no configuration could make shorter what it waits for."""
    patience: float = PROOF_SECONDS
    """How long a changed configuration may take until it works, but for what it is not to blame for."""


def asked_to_end() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked


async def through_changes(
    configuration: Configuration[Any, Any], start: Callable[[], Running], voice: Voice, end: asyncio.Event
) -> None:
    """Until `end` is set. Raises what ended the program, but for a changed configuration that is then taken back."""
    outbox, left = Outbox(voice), TRIES
    while not end.is_set():
        ran = configuration.now
        try:
            await _one(configuration, start(), outbox, end)
            left = TRIES
        except Exception as why:
            left -= 1
            if isinstance(why, Unavailable) and left and configuration.is_new and configuration.runs(ran):
                log.warning("The program cannot go on yet, and is built again", err=str(why))
                await asyncio.sleep(PAUSE_SECONDS)
            elif not _outlives(configuration, ran, why):
                raise
            else:
                left = TRIES
        # the engine keeps the collector away from what lives as long as its program: that one has ended
        gc.unfreeze()
        gc.collect()


def _outlives(configuration: Configuration[Any, Any], ran: InEffect[Any, Any], why: Exception) -> bool:
    """Whether there is a configuration to go on with after a program that was built for `ran` has ended so."""
    if not configuration.runs(ran):
        log.error("The program has ended as its configuration was about to be replaced", error=why)
        return True
    if not (isinstance(why, Invalid) or configuration.is_new):
        return False
    file = type(ran.config).file
    no = why if isinstance(why, Invalid) else Invalid(file, f"the program ends with it: {why or type(why)}")
    if not configuration.fails(no):
        return False
    # the next program tells the user
    log.error("The configuration does not work, the one before goes on", error=why)
    return True


async def _one(
    configuration: Configuration[Any, Any], running: Running, outbox: Outbox, end: asyncio.Event
) -> None:
    # What ends the program counts before what comes of that.
    tasks = (
        asyncio.create_task(_life(running.work), name="program"),
        asyncio.create_task(_prove(configuration, running, outbox), name="proof of the configuration"),
        asyncio.create_task(_listen(configuration, running, outbox), name="configuration"),
        asyncio.create_task(outbox.run(running.kube), name="Events"),
        asyncio.create_task(end.wait(), name="signal"),
    )
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if end.is_set():
            await running.farewell()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in done:
            task.result()


async def _life(work: Coroutine[Any, Any, None]) -> None:
    """Raises what ended it: what only the user can change, or one of our sentences, else the group that a bug is in."""
    try:
        await work
    except BaseExceptionGroup as group:
        wrong, rest = group.split(Invalid)
        if wrong is not None:
            if rest is not None:
                log.error("What else failed with a configuration that cannot work", error=rest)
            raise _first(wrong) from group
        ours, bugs = group.split(AntreaError)
        if ours is None or bugs is not None:
            raise
        raise _first(ours) from group


def _first(group: BaseExceptionGroup[E]) -> E:
    """What went wrong first; the rest was cancelled, or follows from it."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


async def _prove(configuration: Configuration[Any, Any], running: Running, outbox: Outbox) -> None:
    """Keep a configuration that works. Raises Invalid where a changed one does not within the program's patience."""
    ran = configuration.now
    if not await _ready(running, running.patience if configuration.is_new else math.inf):
        waits = f"after {running.patience:g} s the program still waits for {running.waiting()}"
        raise Invalid(type(ran.config).file, waits)
    if configuration.runs(ran):
        configuration.works()
        _accepted(configuration, outbox)
    await asyncio.Event().wait()


async def _ready(running: Running, seconds: float) -> bool:
    """Whether it works within so many seconds in which this process had its turn and nothing else was to blame."""
    ready = asyncio.ensure_future(running.ready())
    try:
        while not ready.done() and seconds > 0:
            look = min(LOOK_SECONDS, seconds)
            await asyncio.wait({ready}, timeout=look)
            seconds -= 0 if running.blameless() else look
        if in_time := ready.done():
            ready.result()
        return in_time
    finally:
        ready.cancel()


async def _listen(configuration: Configuration[Any, Any], running: Running, outbox: Outbox) -> None:
    """Until the program has to be rebuilt for a new configuration; outside of a Pod there is no ConfigMap."""
    namespace = os.environ.get("POD_NAMESPACE", "")
    _tell(configuration, outbox)
    if not namespace or running.kube is None:
        await asyncio.Event().wait()
        return
    async for data in contents(running.kube, namespace, own_config_map()):
        text = data.get(type(configuration.now.config).file)
        if text is None:
            continue
        changed = configuration.offer(text)
        running.heard()
        _tell(configuration, outbox)
        if changed:
            log.info("The configuration has changed")
            return
        _accepted(configuration, outbox)


def _accepted(configuration: Configuration[Any, Any], outbox: Outbox) -> None:
    """Who was told of a refusal is told of its end."""
    if configuration.recovers():
        message = f"{type(configuration.now.config).file}: accepted and in effect, after one that was refused"
        log.info("Configuration", reason=ACCEPTED, message=message)
        outbox.tell(ACCEPTED, message)


class Sentence(NamedTuple):
    """One Warning."""

    reason: str
    message: str


def _tell(configuration: Configuration[Any, Any], outbox: Outbox) -> None:
    """What was not told yet; a program that is rebuilt does not repeat it."""
    now = configuration.now
    for line in sentences(configuration.told, now):
        log.warning("Configuration", reason=line.reason, message=line.message)
        outbox.tell(line.reason, line.message, warning=True)
    configuration.told = now


def sentences(before: InEffect[Any, Any] | None, now: InEffect[Any, Any]) -> list[Sentence]:
    """What the user has to be told of `now` and was not told of `before`."""
    file = type(now.config).file
    told = [
        Sentence("UnknownConfigKey", f"{file}: {key.sentence}")
        for key in now.unknown
        if before is None or key not in before.unknown
    ]
    if now.rejected and (before is None or now.rejected != before.rejected):
        told.append(Sentence("ConfigRejected", f"{now.rejected}; the last good configuration goes on"))
    if now.pending and (before is None or now.pending != before.pending):
        keys = ", ".join(now.pending)
        told.append(Sentence("ConfigNeedsRestart", f"{file}: {keys}: takes effect when the Pod restarts"))
    return told

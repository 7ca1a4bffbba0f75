"""Run a program in one process through changes of its configuration, and report the outcome of each.

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

from antrea.config.idle import without_effect
from antrea.errors import AntreaError, Invalid, Unavailable, describe_error
from antrea.outside.kube.config_map import contents
from antrea.outside.kube.environment import own_config_map
from antrea.outside.kube.event_recorder import EventQueue
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from antrea.config.effect import InEffect
    from antrea.outside.kube.client import Kube
    from antrea.outside.kube.event_recorder import EventRecorder
    from antrea.outside.reload.configuration import Configuration

E = TypeVar("E", bound=AntreaError)
log = klog.logger(__name__)
PROOF_SECONDS = 30.0
"""How long a changed configuration may take until the program works with it, before it is taken back."""
LOOK_SECONDS = 1.0
TRIES, PAUSE_SECONDS = 3, 1.0
"""How often a program is built for a changed configuration while it fails for another reason."""

ACCEPTED = "ConfigAccepted"
ONE_SIDED = "GateNotInBothFiles"


async def do_nothing() -> None:
    """To be done."""


class Running(NamedTuple):
    """A program that runs with one configuration."""

    work: Coroutine[Any, Any, None]
    """Its life. Raises Invalid for a configuration that it finds it cannot work with."""
    ready: Callable[[], Awaitable[object]]
    """Returns once it works."""
    waiting: Callable[[], str]
    """Function that names what it still waits for."""
    kube: Kube | None
    """Where the ConfigMap is; None: nowhere."""
    heard: Callable[[], None] = lambda: None
    """Called when a new text was taken or refused."""
    farewell: Callable[[], Awaitable[None]] = do_nothing
    """Orderly end that it performs while it still works, once the process is asked to end."""
    blameless: Callable[[], bool] = lambda: False
    """Whether no configuration could make shorter what it waits for."""
    patience: float = PROOF_SECONDS
    """How long a changed configuration may take until it works, but for what it is not to blame for."""


def asked_to_end() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    return end


async def through_changes(
    configuration: Configuration[Any, Any],
    start: Callable[[], Running],
    recorder: EventRecorder,
    end: asyncio.Event,
) -> None:
    """Run until `end` is set. Raises what ended the program, but for a changed configuration that is then taken back."""
    events, left = EventQueue(recorder), TRIES
    while not end.is_set():
        ran = configuration.now
        try:
            await _one(configuration, start(), events, end)
            left = TRIES
        except Exception as error:
            left -= 1
            if isinstance(error, Unavailable) and left and configuration.is_new and configuration.runs(ran):
                log.warning("The program cannot start yet; retrying", err=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
            elif not _outlives(configuration, ran, error):
                raise
            else:
                left = TRIES
        # the engine keeps the collector away from what lives as long as its program: that one has ended
        gc.unfreeze()
        gc.collect()


def _outlives(configuration: Configuration[Any, Any], ran: InEffect[Any, Any], why: Exception) -> bool:
    """Whether there is a configuration to continue with after a program that was built for `ran` has ended so."""
    if not configuration.runs(ran):
        log.error("The program ended before its configuration could be replaced", error=why)
        return True
    if not (isinstance(why, Invalid) or configuration.is_new):
        return False
    file = type(ran.config).file
    no = (
        why if isinstance(why, Invalid) else Invalid(file, f"the program ends with it: {describe_error(why)}")
    )
    if not configuration.fails(no):
        return False
    # the next program tells the user
    log.error("The configuration does not work; the previous one stays in effect", error=why)
    return True


async def _one(
    configuration: Configuration[Any, Any], running: Running, events: EventQueue, end: asyncio.Event
) -> None:
    # What ends the program counts before what comes of that.
    tasks = (
        asyncio.create_task(_life(running.work), name="program"),
        asyncio.create_task(_prove(configuration, running, events), name="proof of the configuration"),
        asyncio.create_task(_listen(configuration, running, events), name="configuration"),
        asyncio.create_task(events.run(running.kube), name="Events"),
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
                log.error("Another failure of a configuration that does not work", error=rest)
            raise _first(wrong) from group
        ours, bugs = group.split(AntreaError)
        if ours is None or bugs is not None:
            raise
        raise _first(ours) from group


def _first(group: BaseExceptionGroup[E]) -> E:
    """Return the first error of a group; the rest was cancelled, or follows from it."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _prove(configuration: Configuration[Any, Any], running: Running, events: EventQueue) -> None:
    """Keep a configuration that works. Raises Invalid where a changed one does not within the program's patience."""
    ran = configuration.now
    if not await _ready(running, running.patience if configuration.is_new else math.inf):
        waits = f"after {running.patience:g} s the program still waits for {running.waiting()}"
        raise Invalid(type(ran.config).file, waits)
    if configuration.runs(ran):
        configuration.works()
        _accepted(configuration, events)
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


async def _listen(configuration: Configuration[Any, Any], running: Running, events: EventQueue) -> None:
    """Wait until the program has to be rebuilt for a new configuration; outside of a Pod there is no ConfigMap."""
    namespace = os.environ.get("POD_NAMESPACE", "")
    _record_warnings(configuration, events)
    if not namespace or running.kube is None:
        await asyncio.Event().wait()
        return
    async for data in contents(running.kube, namespace, own_config_map()):
        _record_comparison(configuration, data, events)
        text = data.get(type(configuration.now.config).file)
        if text is None:
            continue
        changed = configuration.offer(text)
        running.heard()
        _record_warnings(configuration, events)
        if changed:
            log.info("The configuration has changed")
            return
        _accepted(configuration, events)


def _accepted(configuration: Configuration[Any, Any], events: EventQueue) -> None:
    """Record an Event when a configuration takes effect after one was rejected."""
    if configuration.recovers():
        message = f"{type(configuration.now.config).file}: accepted and in effect, after one that was refused"
        log.info("Configuration", reason=ACCEPTED, message=message)
        events.record(ACCEPTED, message)


class ConfigWarning(NamedTuple):
    """One Warning."""

    reason: str
    message: str


def _record_warnings(configuration: Configuration[Any, Any], events: EventQueue) -> None:
    """Record new warnings; a program that is rebuilt does not repeat them."""
    now = configuration.now
    for line in sentences(configuration.reported, now):
        log.warning("Configuration", reason=line.reason, message=line.message)
        events.record(line.reason, line.message, warning=True)
    configuration.reported = now


def _record_comparison(
    configuration: Configuration[Any, Any], files: Mapping[str, str], events: EventQueue
) -> None:
    """Record once in what the files of other programs do not fit this program's."""
    differences = tuple(configuration.compare(configuration.now.gates, files))
    for message in differences:
        if message not in configuration.compared:
            log.warning("Configuration", reason=ONE_SIDED, message=message)
            events.record(ONE_SIDED, message, warning=True)
    configuration.compared = differences


def sentences(before: InEffect[Any, Any] | None, now: InEffect[Any, Any]) -> list[ConfigWarning]:
    """Warnings on `now` that `before` did not have."""
    file = type(now.config).file
    changed = [
        ConfigWarning("UnknownConfigKey", f"{file}: {key.sentence}")
        for key in now.unknown
        if before is None or key not in before.unknown
    ]
    known = without_effect(before) if before else ()
    changed += [
        ConfigWarning("ConfigKeyWithoutEffect", f"{file}: {key}")
        for key in without_effect(now)
        if key not in known
    ]
    if now.rejected and (before is None or now.rejected != before.rejected):
        changed.append(
            ConfigWarning("ConfigRejected", f"{now.rejected}; the last good configuration stays in effect")
        )
    if now.pending and (before is None or now.pending != before.pending):
        keys = ", ".join(now.pending)
        changed.append(
            ConfigWarning("ConfigNeedsRestart", f"{file}: {keys}: takes effect when the Pod restarts")
        )
    return changed

"""Logging as operators of Kubernetes expect it: klog's line format, verbosity, flags and files.

Modules write `log = klog.logger(__name__)` and `log.info("Assigned Egress IP", egress=name, ip=ip)`.
Layers that may not import this one use logging.getLogger(__name__) with extra={"fields": {...}}.
Source: https://github.com/kubernetes/klog (klog.go, klog_file.go), upstream pkg/log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from antrea.errors import describe_error
from antrea.outside.log.klog_file import SeverityFile

if TYPE_CHECKING:
    from collections.abc import Callable

_LETTERS = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"))


class Options(msgspec.Struct, frozen=True):
    """klog's flags as the manifest passes them."""

    v: int = 0
    logtostderr: bool = True
    alsologtostderr: bool = False
    stderrthreshold: int = logging.ERROR
    log_dir: str = ""
    log_file_max_size: int = 1800
    """MB; 0: no limit."""
    log_file_max_num: int = 0
    """Files to keep of each severity; 0: all."""


class Log:
    """Writes a constant sentence plus fields, at one verbosity."""

    def __init__(self, name: str, level: int = 0) -> None:
        self._logger = logging.getLogger(name)
        self._level = logging.INFO - level

    def v(self, level: int) -> Log:
        """A log whose `info` is written only if -v is at least `level` (0 to 10)."""
        return Log(self._logger.name, level)

    @property
    def enabled(self) -> bool:
        """Whether `info` is written, for fields that are costly to compute."""
        return self._logger.isEnabledFor(self._level)

    def info(self, sentence: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.log(self._level, sentence, extra={"fields": fields}, stacklevel=2)

    def warning(self, sentence: str, **fields: Any) -> None:
        """Log a condition that an administrator should look at."""
        self._logger.warning(sentence, extra={"fields": fields}, stacklevel=2)

    def error(self, sentence: str, *, error: BaseException | None = None, **fields: Any) -> None:
        """Log a failure; `error` becomes the field err."""
        named = {} if error is None else {"err": _value_text(error)}
        self._logger.error(sentence, extra={"fields": named | fields}, stacklevel=2)


def logger(name: str) -> Log:
    """The log of one module."""
    return Log(name)


class KlogFormatter(logging.Formatter):
    """I1120 23:26:14.426123   12345 file.py:42] "Constant sentence" key="value" """

    def format(self, record: logging.LogRecord) -> str:
        letter = next((letter for level, letter in _LETTERS if record.levelno >= level), "I")
        when = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        head = f"{letter}{when}.{int(record.created % 1 * 1e6):06d} {os.getpid():7d} {record.filename}:{record.lineno}] "
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        sentence = record.getMessage()
        if fields is not None:
            sentence = " ".join([_quoted(sentence), *(f"{k}={_value(v)}" for k, v in fields.items())])
        if record.exc_info:
            sentence += "\n" + self.formatException(record.exc_info)
        return head + sentence


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list | tuple | set | frozenset | dict):
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return json.dumps(ordered, ensure_ascii=False, default=_value_text)
    return _quoted(_value_text(value))


def _value_text(value: object) -> str:
    if isinstance(value, BaseExceptionGroup):
        return describe_error(value)
    if isinstance(value, BaseException):
        return str(value) or type(value).__name__
    return value.__name__ if isinstance(value, type) else str(value)


def verbosity() -> int:
    """The current -v."""
    return logging.INFO - logging.getLogger().level


def set_verbosity(level: int) -> None:
    """Change -v while the program runs, as antctl log-level does."""
    logging.getLogger().setLevel(logging.INFO - level)


def start(options: Options, program: str) -> None:
    """Send all logging of this process to the targets in `options`; `program` names the files. May be called again."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in _handlers(options, program):
        handler.setFormatter(KlogFormatter())
        root.addHandler(handler)
    set_verbosity(options.v)
    # the libraries' own information is for their developers
    for library in ("aiohttp", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _handlers(options: Options, program: str) -> list[logging.Handler]:
    stderr = logging.StreamHandler(sys.stderr)
    if options.logtostderr:
        return [stderr]
    if not options.alsologtostderr:
        stderr.setLevel(options.stderrthreshold)
    directory = options.log_dir or "/tmp"  # noqa: S108 (klog's default)
    files = [
        SeverityFile(directory, program, severity, options.log_file_max_size << 20, options.log_file_max_num)
        for severity in ("INFO", "WARNING", "ERROR")
    ]
    return [stderr, *files]


def flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command klog's flags, in Go's spelling; they arrive as one keyword `log: Options`."""

    def with_options(
        v: int,
        logtostderr: bool,
        alsologtostderr: bool,
        stderrthreshold: str,
        log_dir: str,
        log_file_max_size: int,
        log_file_max_num: int,
        **rest: Any,
    ) -> Any:
        level = logging.getLevelNamesMapping()[stderrthreshold.upper()]
        options = Options(
            v, logtostderr, alsologtostderr, level, log_dir, log_file_max_size, log_file_max_num
        )
        return command(log=options, **rest)

    with_options.__doc__ = command.__doc__
    with_options.__name__ = command.__name__
    with_options.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        option(with_options)
    return with_options


def _boolean(name: str, default: bool, text: str) -> Callable[[Any], Any]:
    # Go reads --flag as true and --flag=false as false
    return click.option(
        f"--{name}",
        name,
        is_flag=False,
        flag_value=True,
        type=bool,
        default=default,
        show_default=True,
        help=text,
    )


_OPTIONS = (
    click.option("-v", "--v", "v", type=click.IntRange(0, 10), default=0, help="number for the log level verbosity"),
    _boolean("logtostderr", True, "log to standard error instead of files"),
    _boolean("alsologtostderr", False, "log to standard error as well as files"),
    click.option(
        "--stderrthreshold",
        type=click.Choice(["INFO", "WARNING", "ERROR", "FATAL"], case_sensitive=False),
        default="ERROR",
        help="logs at or above this threshold go to stderr when writing to files",
    ),
    click.option("--log_dir", default="", help="directory of the log files"),
    click.option(
        "--log_file_max_size", type=click.IntRange(0, 102400), default=1800, help="size in MB a log file grows to"
    ),
    click.option(
        "--log_file_max_num", type=click.IntRange(0, 65535), default=0, help="log files to keep of each severity; 0: all"
    ),
)  # fmt: skip

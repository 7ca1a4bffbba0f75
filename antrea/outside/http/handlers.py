"""Parts of a program's own HTTPS API: health checks, metrics, log level.

The server itself, who may ask it and what, is antrea.outside.apiserver.server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from antrea.decoding import is_number
from antrea.errors import Invalid
from antrea.outside.log import klog
from antrea.outside.log.metrics import measured

HEALTH = ("healthz", "livez", "readyz")
Check = Callable[[], str]
"""Returns why it fails; an empty text is success."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _never() -> bool:
    return False


def health(
    name: str, checks: Mapping[str, Check], tolerant: Callable[[], bool] = _never
) -> dict[str, Handler]:
    """Handlers of `/name`, which asks all `checks`, and of `/name/CHECK`, which asks one; `ping` always answers.

    While it is `tolerant`, `/name` passes, and shows what fails to who asks for it (`?verbose`).

    parity: k8s.io/apiserver/pkg/server/healthz/healthz.go, but for why a check fails: upstream withholds it.
    """
    named: dict[str, Check] = {"ping": str, **checks}
    return {
        f"/{name}": _health(name, named, tolerant),
        **{f"/{name}/{check}": _one_check(test) for check, test in named.items()},
    }


def _health(name: str, checks: Mapping[str, Check], tolerant: Callable[[], bool]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", ()))
        failed = {check: why for check, test in checks.items() if check not in excluded and (why := test())}
        passed = not failed or tolerant()
        if passed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [_line(check, failed.get(check, ""), excluded=check in excluded) for check in checks]
        if unknown := sorted(excluded - checks.keys()):
            names = ", ".join(json.dumps(check) for check in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        lines.append(f"{name} check {'passed' if passed else 'failed'}")
        return web.Response(text="\n".join(lines) + "\n", status=200 if passed else 500)

    return handler


def _line(check: str, why: str, *, excluded: bool) -> str:
    if excluded:
        return f"[+]{check} excluded: ok"
    return f"[-]{check} failed: {why}" if why else f"[+]{check} ok"


def _one_check(test: Check) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        if why := test():
            return web.Response(text=f"internal server error: {why}\n", status=500)
        return web.Response(text="ok")

    return handler


def json_answer(body: Any) -> web.Response:
    """`body` as JSON, a Struct or a list of them."""
    return web.Response(body=msgspec.json.encode(body) + b"\n", content_type="application/json")


WARNING_LENGTH = 1000


def warn(answer: web.Response, sentences: Iterable[str]) -> web.Response:
    """The answer with a header `Warning` for each sentence, which antctl and kubectl print (RFC 7234, 5.5)."""
    for sentence in sentences:
        line = " ".join(sentence.split()).encode("ascii", "backslashreplace").decode()[:WARNING_LENGTH]
        quoted = line.replace("\\", "\\\\").replace('"', '\\"')
        answer.headers.add("Warning", f'299 - "{quoted}"')
    return answer


def metrics_of(own_metrics: str) -> web.Response:
    """Metrics in Prometheus' format: `own_metrics`, and those that every process has."""
    return web.Response(text=own_metrics + measured(), content_type="text/plain")


async def loglevel(request: web.Request) -> web.Response:
    """Show the verbosity, or set it to the query's `level`. Raises Invalid."""
    level = request.query.get("level", "")
    if not level:
        return json_answer(klog.verbosity())
    if not is_number(level, 10):
        raise Invalid("level", "log level must be a number from 0 to 10")
    klog.set_verbosity(int(level))
    return web.Response()

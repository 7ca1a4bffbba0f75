"""Answers of antctl for a user of the web page: it runs as a process of its own, with that user's token and no other right.

What it may take is bounded (time, memory, size of the answer, one of each user and AT_A_TIME of all), so that it cannot hold up records.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import resource
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from antrea.errors import Invalid, Unavailable
from antrea.outside.apiserver.status import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from antrea.outside.kube.access import Access

SECONDS: Final = 30.0
"""For one answer, and to wait for a place."""
AT_A_TIME: Final = 2
"""Commands of all users."""
MEMORY: Final = 1 << 30
"""Bytes of the address space."""
MAX_ANSWER: Final = 8 << 20
MAX_POLICIES: Final = 256 << 10
"""Bytes of policies to try."""
KEPT_VARIABLES: Final = ("PATH", "PYTHONPATH", "LANG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
ANSWERED: Final = (0, 3)
"""Exit codes; 3: a packet that is refused, a verdict that would change."""
_STATUS: Final = {os.EX_NOPERM: 403, os.EX_TEMPFAIL: 503}
"""Status of HTTP by exit codes of antrea.antctl.exit_code; others mean that the question cannot be answered as it is."""
_NAME: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_END: Final = re.compile(rf"{_NAME}/{_NAME}|[0-9a-fA-F:.]{{2,45}}")
_PORT: Final = re.compile(r"[0-9]{1,5}/(tcp|udp|sctp)|icmp")
_NAMESPACE: Final = re.compile(_NAME)
FLOWS_FOR: Final = "policy.antrea.io/recommended-for"


class UserShare:
    """Places for `at_a_time` pieces of work."""

    def __init__(self, at_a_time: int) -> None:
        self._places = asyncio.Semaphore(at_a_time)
        self._waiting: dict[str, tuple[asyncio.Lock, int]] = {}
        """The turn of each user, and how many wait for it or have it."""

    @contextlib.asynccontextmanager
    async def place(self, user: str, seconds: float) -> AsyncIterator[None]:
        """Have a place while the block runs. Raises Unavailable: there was none in time."""
        lock, count = self._waiting.get(user, (asyncio.Lock(), 0))
        self._waiting[user] = lock, count + 1
        try:
            async with contextlib.AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(seconds):
                        # the places are given in the order of requests: one of each user waits for them at most
                        await held.enter_async_context(lock)
                        await held.enter_async_context(self._places)
                except TimeoutError:
                    raise Unavailable(
                        f"no answer began within {seconds:.0f} s: you or other users ask for the same, try again"
                    ) from None
                yield
        finally:
            lock, count = self._waiting.pop(user)
            if count > 1:
                self._waiting[user] = lock, count - 1


class PrintedText(NamedTuple):
    """Output of a command."""

    out: bytes
    lines: list[str]
    """On standard error."""


class UserAntctl:
    """One command of a user at a time; `user` has asked for it."""

    def __init__(self) -> None:
        self._share = UserShare(AT_A_TIME)

    async def explained(self, user: str, access: Access, parameters: Mapping[str, str]) -> Any:
        """The answer of `antctl explain` about a packet of a connection. Raises Invalid, ApiError, Unavailable."""
        arguments = [f"--{key}={_matching(parameters, key, _END)}" for key in ("from", "to")]
        port = _matching(parameters, "port", _PORT)
        done = await self._antctl(
            user, access, ("explain", *arguments, f"--port={port}", "--no-switches", "-o", "json"), {}
        )
        return json.loads(done.out)

    async def recommended(
        self, user: str, access: Access, namespace: str, seen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Policies for a Namespace, of `seen`, the answer of the map by endpoint. Raises Invalid, ApiError, Unavailable."""
        name = _matching({"namespace": namespace}, "namespace", _NAMESPACE)
        arguments = ("policy", "recommend", f"--namespace={name}", "--flows={flows}", "-o", "yaml")
        done = await self._antctl(user, access, arguments, {"flows": json.dumps(seen).encode()})
        text = done.out.decode()
        return {
            "yaml": text,
            "policies": [_row(policy) for policy in yaml.safe_load_all(text)],
            "leftOut": list(_after("left out: ", done.lines)),
            "notes": list(_after("note: ", done.lines)),
        }

    async def replayed(
        self, user: str, access: Access, namespace: str, policies: bytes, seen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Connections of `seen` that these policies would judge otherwise. Raises Invalid, ApiError, Unavailable."""
        if len(policies) > MAX_POLICIES:
            raise Invalid("policies", f"have more than {MAX_POLICIES >> 10} KiB")
        arguments = ["policy", "replay", "--filename={policies}", "--flows={flows}", "-o", "json"]
        if namespace:
            arguments.append(f"--namespace={_matching({'namespace': namespace}, 'namespace', _NAMESPACE)}")
        given = {"flows": json.dumps(seen).encode(), "policies": policies}
        done = await self._antctl(user, access, arguments, given)
        lacks = [*_after("not taken into account: ", done.lines), *_after("not judged: ", done.lines)]
        summary = "".join(done.lines[-1:])
        return {"rows": json.loads(done.out or b"[]"), "summary": summary, "lacks": lacks}

    async def _antctl(
        self, user: str, access: Access, arguments: Sequence[str], given: Mapping[str, bytes]
    ) -> PrintedText:
        """`{name}` in a word is the path of what is `given` by that name."""
        async with self._share.place(user, SECONDS):
            with contextlib.ExitStack() as held:
                files = {name: held.enter_context(_memory(content)) for name, content in given.items()}
                kubeconfig = held.enter_context(_memory(_kubeconfig(access)))
                out, errors = held.enter_context(_memory()), held.enter_context(_memory())
                paths = {name: f"/proc/self/fd/{file}" for name, file in files.items()}
                command = [
                    f"--kubeconfig=/proc/self/fd/{kubeconfig}",
                    *(argument.format(**paths) for argument in arguments),
                ]
                code = await _run(command, (kubeconfig, *files.values()), out, errors)
                printed = PrintedText(_content(out), _content(errors).decode(errors="replace").splitlines())
        if code not in ANSWERED:
            raise ApiError(_STATUS.get(code, 422), _reason(printed.lines, paths))
        return printed


async def _run(arguments: Sequence[str], files: Sequence[int], out: int, errors: int) -> int:
    """The exit code. Raises Unavailable: it took too long."""
    # without the Pod's name antctl asks kube-apiserver, as on a workstation
    environ = {key: value for key, value in os.environ.items() if key.upper() in KEPT_VARIABLES}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "antrea.antctl.exit_code", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=errors, pass_fds=files, env=environ,
    )  # fmt: skip
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, 10)
            for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, MAX_ANSWER)):
                resource.prlimit(process.pid, what, (most, most))
        async with asyncio.timeout(SECONDS):
            return await process.wait()
    except TimeoutError:
        raise Unavailable(f"there was no answer within {SECONDS:.0f} s: ask for less") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.contextmanager
def _memory(content: bytes = b"") -> Iterator[int]:
    """A file without a name: a token is on no disk, and in no list of processes."""
    file = os.memfd_create("antctl")
    try:
        with open(file, "wb", closefd=False) as whole:
            whole.write(content)
        yield file
    finally:
        os.close(file)


def _content(file: int) -> bytes:
    return os.pread(file, MAX_ANSWER, 0)


def _kubeconfig(access: Access) -> bytes:
    """JSON is YAML."""
    cluster: dict[str, Any] = {"server": access.url, "insecure-skip-tls-verify": access.insecure}
    if access.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca_pem.encode()).decode()
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.proxy_url:
        cluster["proxy-url"] = access.proxy_url
    shape = {
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": access.token}}],
        "contexts": [{"name": "page", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "page",
    }
    return json.dumps(shape).encode()


def _matching(parameters: Mapping[str, str], key: str, pattern: re.Pattern[str]) -> str:
    text = parameters.get(key, "")
    if not pattern.fullmatch(text):
        wanted = "a Pod as namespace/name or an address" if pattern is _END else f"a {key}"
        raise Invalid(key, f"{text[:253]!r} is not {wanted}")
    return text


def _reason(lines: Sequence[str], paths: Mapping[str, str]) -> str:
    text = "\n".join(line for line in lines if line.startswith("Error: ")) or "\n".join(lines[-5:])
    for name, path in paths.items():
        text = text.replace(path, name)
    return text.removeprefix("Error: ") or "antctl ended without an answer"


def _after(prefix: str, lines: Sequence[str]) -> Iterator[str]:
    return (line.removeprefix(prefix) for line in lines if line.startswith(prefix))


def _row(policy: Mapping[str, Any]) -> dict[str, Any]:
    meta, spec = policy["metadata"], policy["spec"]
    labels = (spec["podSelector"].get("matchLabels") or {}).items()
    return {
        "name": meta["name"],
        "selects": ", ".join(f"{key}={value}" for key, value in labels) or "all Pods",
        "ingress": len(spec.get("ingress", ())),
        "egress": len(spec.get("egress", ())),
        "connections": (meta.get("annotations") or {}).get(FLOWS_FOR, ""),
    }

"""`antctl proxy`: the API of the controller, or of an agent, at a local port and with credentials already shown.

parity: pkg/antctl/raw/proxy/command.go, which is kubectl's proxy (k8s.io/kubectl/pkg/proxy).
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP
from antrea.antctl.mode import REMOTE
from antrea.antctl.output import echo
from antrea.antctl.remote import TOKEN_SECONDS, agent, agent_token, antrea_namespace, controller

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from antrea.antctl.request import Server

PORT = 8001
RENEW_SECONDS = 60
"""How long before its end a token is replaced."""
ACCEPT_HOSTS = r"^localhost$,^127\.0\.0\.1$,^\[::1\]$"
REJECT_PATHS = "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach"
EXAMPLES = """
  Start a reverse proxy for the Antrea Controller API
  $ antctl proxy --controller

  Start a reverse proxy for the API of an Antrea Agent running on a specific Node
  $ antctl proxy --agent-node <Node Name>"""
TEXT = "Run a reverse proxy to access Antrea API (Controller or Agent). Command only supports remote mode."


class Filter(NamedTuple):
    """Which requests pass; every pattern is searched, not matched whole."""

    accept_paths: tuple[re.Pattern[str], ...]
    reject_paths: tuple[re.Pattern[str], ...]
    accept_hosts: tuple[re.Pattern[str], ...]
    reject_methods: tuple[re.Pattern[str], ...]

    def accepts(self, method: str, path: str, host: str) -> bool:
        """`host` is that of the request's header, with or without a port."""
        named = host if host.endswith("]") else re.sub(r":\d+$", "", host)
        if _any(self.reject_methods, method) or _any(self.reject_paths, path):
            return False
        return _any(self.accept_paths, path) and _any(self.accept_hosts, named)


class Place(NamedTuple):
    """Where the proxy listens: at `socket` if it is given."""

    address: str
    port: int
    socket: Path | None


class Files(NamedTuple):
    """A folder that is served, too."""

    folder: Path
    prefix: str


class Identity:
    """The headers that authenticate a request: an agent's token is made anew before it ends."""

    def __init__(self, kubernetes: Server | None, target: Server) -> None:
        """`kubernetes` makes tokens of the ServiceAccount antctl; None: the credentials of `target`. Raises Failure."""
        self._kubernetes = kubernetes
        self._target = target
        self._namespace = antrea_namespace(kubernetes) if kubernetes else ""
        self._token = ""
        self._until = 0.0

    def headers(self) -> MutableMapping[str, str]:
        """May ask kube-apiserver. Raises Failure."""
        if self._kubernetes is None:
            return self._target.access.authorization()
        if time.monotonic() > self._until:
            self._token = agent_token(self._kubernetes, self._namespace)
            self._until = time.monotonic() + TOKEN_SECONDS - RENEW_SECONDS
        return {"Authorization": f"Bearer {self._token}"}


def command() -> click.Command:
    """The command `proxy` with upstream's options."""
    flag: dict[str, Any] = {"is_flag": True}
    shown: dict[str, Any] = {"show_default": True}
    options = [
        click.Option(["-w", "--www"], help="Also serve static files from the given directory under the specified prefix."),
        click.Option(["-P", "--www-prefix"], default="/static/", help="Prefix to serve static files under, if static file directory is specified.", **shown),
        click.Option(["--api-prefix"], default="/", help="Prefix to serve the proxied API under.", **shown),
        click.Option(["--accept-paths"], default="^.*", help="Regular expression for paths that the proxy should accept.", **shown),
        click.Option(["--reject-paths"], default=REJECT_PATHS, help="Regular expression for paths that the proxy should reject. Paths specified here will be rejected even accepted by --accept-paths.", **shown),
        click.Option(["--accept-hosts"], default=ACCEPT_HOSTS, help="Regular expression for hosts that the proxy should accept.", **shown),
        click.Option(["--reject-methods"], default="^$", help="Regular expression for HTTP methods that the proxy should reject (example --reject-methods='POST,PUT,PATCH').", **shown),
        click.Option(["-p", "--port"], default=PORT, help="The port on which to run the proxy. Set to 0 to pick a random port.", **shown),
        click.Option(["--address"], default="127.0.0.1", help="The IP address on which to serve on.", **shown),
        click.Option(["--disable-filter"], help="If true, disable request filtering in the proxy. This is dangerous, and can leave you vulnerable to XSRF attacks, when used with an accessible port.", **flag),
        click.Option(["-u", "--unix-socket"], help="Unix socket on which to run the proxy."),
        click.Option(["--keepalive"], default="0s", help="keepalive specifies the keep-alive period for an active network connection. Set to 0 to disable keepalive.", **shown),
        click.Option(["--controller"], help="Run proxy for Antrea Controller API. If both --controller and --agent-node are omitted, the proxy will run for the Controller API.", **flag),
        click.Option(["--agent-node"], help="Run proxy for Antrea Agent API on the provided K8s Node."),
        click.Option(["--insecure"], help="Skip TLS verification when connecting to Antrea API.", **flag),
    ]  # fmt: skip
    return click.Command(
        "proxy",
        context_settings=HELP,
        params=[*options],
        callback=_callback,
        short_help="Run a reverse proxy to access Antrea API",
        help=f"{TEXT}\n\n" + "\n\n".join(f"\b\n{part}" for part in f"Examples:{EXAMPLES}".split("\n\n")),
    )


def _callback(**given: Any) -> None:
    target = click.get_current_context().obj
    if target.mode is not REMOTE:
        raise Failure("only remote mode is supported for this command")
    if given["port"] != PORT and given["unix_socket"]:
        raise Failure("cannot set --unix-socket and --port at the same time")
    if given["controller"] and given["agent_node"]:
        raise Failure("cannot use --controller and --agent-node at the same time")
    place = Place(
        given["address"], given["port"], Path(given["unix_socket"]) if given["unix_socket"] else None
    )
    accepted = _filter(given)
    kubernetes = target.find()
    if given["agent_node"]:
        behind = agent(kubernetes, given["agent_node"], insecure=given["insecure"])
        identity = Identity(kubernetes, behind)
    else:
        behind = controller(kubernetes, insecure=given["insecure"])
        identity = Identity(None, behind)
    from antrea.antctl.proxy.server import ReverseProxy  # noqa: PLC0415 (start-up time)

    ReverseProxy(
        behind.access,
        identity,
        accepted,
        prefix=_slashed(given["api_prefix"]),
        files=_files(given),
        keepalive=_period(given["keepalive"]),
    ).serve(place)


def _filter(given: dict[str, Any]) -> Filter | None:
    if given["disable_filter"]:
        if not given["unix_socket"]:
            _warn("Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious")
        return None
    return Filter(*(_patterns(name, given[name]) for name in Filter._fields))


def _patterns(option: str, text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(part) for part in text.split(","))
    except re.error as error:
        raise Failure(
            f"--{option.replace('_', '-')}: {text!r} is not a regular expression: {error}"
        ) from error


def _files(given: dict[str, Any]) -> Files | None:
    if not given["www"]:
        return None
    folder = Path(given["www"])
    if not folder.is_dir():
        raise Failure(f"--www: {folder} is not a directory")
    return Files(folder, _slashed(given["www_prefix"]))


def _period(text: str) -> float:
    from antrea.config.shape import seconds  # noqa: PLC0415 (start-up time)

    try:
        return 0.0 if text == "0" else seconds(text)
    except ValueError as error:
        raise Failure(f'invalid argument "{text}" for "--keepalive" flag: {error}') from error


def _slashed(prefix: str) -> str:
    return f"/{prefix.strip('/')}/" if prefix.strip("/") else "/"


def _any(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(pattern.search(text) for pattern in patterns)


def _warn(line: str) -> None:
    echo(line, err=True)

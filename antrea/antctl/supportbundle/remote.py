"""`antctl supportbundle` from a workstation: bundles of the controller and of agents, and the cluster around them.

A program that cannot be asked costs its own bundle only. parity: pkg/antctl/raw/supportbundle/command.go
"""

from __future__ import annotations

import fnmatch
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from antrea.antctl.failure import Failure
from antrea.antctl.output import echo
from antrea.antctl.proxy.command import Identity
from antrea.antctl.remote import AGENT_INFOS, agent_of, antrea_namespace, controller
from antrea.antctl.supportbundle import command as supportbundle
from antrea.antctl.supportbundle.cluster import fallback_agents, fallback_controller, listed, write_cluster
from antrea.antctl.supportbundle.progress import Bar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.antctl.request import Server

MAX_CONCURRENT = 16
"""Programs that are asked at a time."""
SECONDS = 15.0
"""How long a program may be silent, without --timeout."""
CONTROLLER = ""
"""Stands for the controller where others are named by their Node."""
HELP = (
    "Generate support bundles for the cluster, which include: information about each Antrea agent, information about"
    " the Antrea controller and general information about the cluster."
)
EXAMPLES = """
  Generate support bundles of the controller and agents on all Nodes and save them to current working dir
  $ antctl supportbundle

  Generate support bundle of the controller
  $ antctl supportbundle --controller-only

  Generate support bundle of the controller and agents on all Nodes with only the logs generated during the last 1 hour
  $ antctl supportbundle --since 1h

  Generate support bundles of agents on specific Nodes filtered by name list, no wildcard support
  $ antctl supportbundle node_a node_b node_c

  Generate support bundles of agents on specific Nodes filtered by names in a file (one Node name per line)
  $ antctl supportbundle -f ~/nodelistfile

  Generate support bundles of agents on specific Nodes filtered by name, with support for wildcard expressions
  $ antctl supportbundle '*worker*'

  Generate support bundles of agents on specific Nodes filtered by name and label selectors
  $ antctl supportbundle '*worker*' -l kubernetes.io/os=linux

  Generate support bundles of the controller and agents on all Nodes and save them to specific dir
  $ antctl supportbundle -d ~/Downloads"""


class Wanted(NamedTuple):
    """Options of `antctl supportbundle`."""

    folder: Path
    names: tuple[str, ...]
    list_file: str
    selector: str
    controller_only: bool
    since: str
    insecure: bool

    @property
    def controller(self) -> bool:
        """Whether the controller's bundle is wanted."""
        chosen = self.names or self.list_file or self.selector
        return self.controller_only or not chosen

    def matcher(self) -> Callable[[str], bool]:
        """Which Nodes are meant. Raises Failure."""
        if len(self.names) == 1:
            return lambda name: fnmatch.fnmatchcase(name, self.names[0])
        if self.list_file and not self.names:
            try:
                lines = Path(self.list_file).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise Failure(f"error when opening node-list-file: {error}") from error
            return {line.strip() for line in lines}.__contains__
        return set(self.names).__contains__ if self.names else lambda _: True


class Collection:
    """Asks many programs, and remembers why which of them failed."""

    def __init__(self, programs: Mapping[str, Callable[[], Server]], wanted: Wanted) -> None:
        """`programs` are by Node or CONTROLLER; who is asked may raise Failure."""
        self._programs = programs
        self._wanted = wanted
        self.failed: dict[str, str] = {}
        self._bar = Bar(2 * len(programs))
        self._ended = threading.Event()

    def run(self) -> None:
        """Start everywhere, then download from everywhere."""
        self._all(
            "Requesting",
            lambda name: supportbundle.begin(self._server(name), _kind(name), self._wanted.since),
        )
        self._all("Downloading", self._download)
        self._bar.end()

    def _server(self, name: str) -> Server:
        return self._programs[name]()

    def _download(self, name: str) -> None:
        path = self._wanted.folder / (f"agent_{name}.tar.gz" if name else "controller.tar.gz")
        supportbundle.download(self._server(name), _kind(name), path, self._sleep)

    def end(self) -> None:
        """All have ended."""
        self._ended.set()

    def _sleep(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise Failure("interrupted")

    def _all(self, what: str, do: Callable[[str], None]) -> None:
        self._bar.show(what)

        def one(name: str) -> None:
            try:
                if name not in self.failed:
                    do(name)
            except Failure as error:
                self.failed[name] = error.message
            self._bar.step()

        with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
            try:
                list(pool.map(one, self._programs))
            except BaseException:
                # Ctrl-C
                self.end()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _kind(name: str) -> str:
    return "agent" if name else "controller"


class Agents:
    """The agents of a cluster, each with the token that it accepts."""

    def __init__(self, kubernetes: Server, wanted: Wanted) -> None:
        self._kubernetes = kubernetes
        self._insecure = wanted.insecure
        self._identity = Identity(kubernetes, kubernetes)
        self._lock = threading.Lock()

    def at(self, node: Mapping[str, Any], info: Mapping[str, Any] | None) -> Server:
        """Raises Failure if it has not reported its address yet."""
        import msgspec  # noqa: PLC0415 (start-up time)

        name = node["metadata"]["name"]
        if info is None:
            raise Failure(f"Node {name} has no AntreaAgentInfo: does an agent run there?")
        agent = agent_of(self._kubernetes, node, info, insecure=self._insecure)
        with self._lock:
            token = self._identity.headers()["Authorization"].removeprefix("Bearer ")
        access: Any = agent.access
        return agent._replace(access=msgspec.structs.replace(access, token=token))


def programs(kubernetes: Server, wanted: Wanted) -> dict[str, Callable[[], Server]]:
    """Return the programs to ask, by name. Raises Failure."""
    servers: dict[str, Callable[[], Server]] = {}
    if not wanted.controller_only:
        matches = wanted.matcher()
        selector = {"labelSelector": wanted.selector} if wanted.selector else {}
        infos = {row.get("nodeRef", {}).get("name", ""): row for row in listed(kubernetes, AGENT_INFOS)}
        nodes = [
            node
            for node in listed(kubernetes, "/api/v1/nodes", **selector)
            if matches(node["metadata"]["name"])
        ]
        agents = Agents(kubernetes, wanted) if nodes else None
        for node in nodes:
            name = node["metadata"]["name"]
            servers[name] = lambda node=node, name=name: agents.at(node, infos.get(name))  # type: ignore[union-attr,misc]
    if wanted.controller:
        servers[CONTROLLER] = lambda: controller(kubernetes, insecure=wanted.insecure)
    if not servers:
        raise Failure("no matched Nodes found to collect agent bundles")
    return servers


def collect(kubernetes: Server, wanted: Wanted) -> None:
    """Everything, into the folder. Raises Failure if nothing could be had, or the folder cannot be written."""
    servers = programs(kubernetes, wanted)
    namespace = antrea_namespace(kubernetes)
    try:
        wanted.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for lack in write_cluster(kubernetes, namespace, wanted.folder / "clusterinfo"):
            echo(f"clusterinfo is not complete: {lack}", err=True)
        collection = Collection(servers, wanted)
        collection.run()
        report(kubernetes, namespace, wanted.folder, collection.failed)
    except OSError as error:
        raise Failure(f"{wanted.folder}: {error.strerror or error}") from error
    kept = len(servers) - len(collection.failed)
    if not kept and not any(wanted.folder.glob("*.tar.gz")):
        raise Failure(f"no data was collected: {'; '.join(collection.failed.values())}")
    echo(f"Saved {kept} of {len(servers)} support bundles under {wanted.folder}")


def report(kubernetes: Server, namespace: str, folder: Path, failed: Mapping[str, str]) -> None:
    """Print which failed and why, and get what kube-apiserver has of them. Raises OSError."""
    if CONTROLLER in failed:
        echo(f"Controller Info Failed Reason: {failed[CONTROLLER]}")
        try:
            fallback_controller(kubernetes, folder)
        except Failure as error:
            echo(f"Failed to download controller bundle from kubernetes api: {error.message}")
    nodes = sorted(name for name in failed if name != CONTROLLER)
    if not nodes:
        return
    echo("Failed nodes: ")
    for name in nodes:
        echo(f"- {name}: {failed[name]}")
    with supportbundle.create(folder / "failed_nodes") as file:
        file.write("".join(f"{name}\n" for name in nodes).encode())
    try:
        fallback_agents(kubernetes, namespace, nodes, folder)
    except Failure as error:
        echo(f"Failed to download agent bundle from kubernetes api: {error.message}")


def command() -> click.Command:
    """The command `supportbundle` of a workstation, with upstream's options."""
    flag: dict[str, Any] = {"is_flag": True}
    options: list[click.Parameter] = [
        click.Argument(["names"], nargs=-1, metavar="[nodeName...]"),
        click.Option(["-d", "--dir", "folder"], default="", help="support bundles output dir, the path will be created if it doesn't exist"),
        click.Option(["-l", "--label-selector", "selector"], default="", help="selector (label query) to filter Nodes for agent bundles, supports '=', '==', and '!='.(e.g. -l key1=value1,key2=value2)"),
        click.Option(["--controller-only"], help="only collect the support bundle of Antrea controller", **flag),
        click.Option(["-f", "--node-list-file", "list_file"], default="", help="only collect the support bundle of specific nodes filtered by names in a file (one node name per line)"),
        click.Option(["--since"], default="", help="only return logs newer than a relative duration like 5s, 2m or 3h. Defaults to all logs"),
        click.Option(["--insecure"], help="Skip TLS verification when connecting to Antrea API.", **flag),
    ]  # fmt: skip
    return click.Command(
        "supportbundle",
        context_settings={"help_option_names": ["-h", "--help"]},
        params=options,
        callback=_callback,
        short_help="Generate support bundle",
        help=f"{HELP}\n\n" + "\n\n".join(f"\b\n{part}" for part in f"Examples:{EXAMPLES}".split("\n\n")),
    )


def _callback(**given: Any) -> None:
    if given["since"]:
        from antrea.config.shape import seconds  # noqa: PLC0415 (start-up time)

        try:
            seconds(given["since"])
        except ValueError as error:
            raise Failure(f'invalid argument "{given["since"]}" for "--since" flag: {error}') from error
    stamp = time.strftime("%Y%m%dT%H%M%S%z").removesuffix("+0000")
    stamp += "" if len(stamp) > 15 else "Z"
    given["folder"] = Path(given["folder"] or f"support-bundles_{stamp}").absolute()
    server: Server = click.get_current_context().obj.find()
    collect(server._replace(seconds=server.seconds or SECONDS), Wanted(**given))

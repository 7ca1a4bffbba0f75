"""antctl: asks the program of this Pod, or the cluster from a workstation, and prints the answer.

The commands themselves are rows in commands.py; this module makes click commands of them, for the mode at hand.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from antrea import VERSION
from antrea.antctl import completion
from antrea.antctl.commands import ACTIONS, DATA_COMMANDS, NOT_BUILT, NotBuilt
from antrea.antctl.failure import Failure
from antrea.antctl.flow_commands import FLOW_COMMANDS
from antrea.antctl.gates import blocks
from antrea.antctl.group import HELP, Group, Later
from antrea.antctl.mode import REMOTE, Mode, mode_of
from antrea.antctl.output import FORMATS, echo, render
from antrea.antctl.request import ErrorResponse, Loopback, Server, ask, ask_warned, loopback
from antrea.errors import Invalid
from antrea.outside.kube.override import Override

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.features.framework.command import DataCommand, PodOption

TOKEN_FILE = Path("/var/run/antrea/apiserver/loopback-client-token")
COMMANDS = (*DATA_COMMANDS, *FLOW_COMMANDS)
CONTROLLER_INFO = "system.antrea.io/v1beta1/controllerinfos/antrea-controller"


def antctl(mode: Mode) -> Group:
    """The command line of one mode."""
    root = Group(
        name="antctl",
        context_settings=HELP,
        help=f"antctl is the command line tool for Antrea that supports showing status of {mode.component}",
        params=_global_options(),
        callback=_remember_target(mode),
    )
    groups = {
        "": root,
        "get": Group(name="get", context_settings=HELP, help="Get the status or resource of a topic"),
        "query": Group(name="query", context_settings=HELP, help="Execute a user-provided query"),
        "egress": Group(name="egress", context_settings=HELP, help="Examine the gateways of Egresses"),
    }
    _tell_of_other_modes(groups)
    for row in COMMANDS:
        if mode.name in row.modes:
            groups[row.group].add(_data_command(row, mode), row.aliases)
    for action in ACTIONS:
        if mode.name in action.modes:
            groups[action.group].add(Later(action.name, action.module, action.short), action.aliases)
    for missing in NOT_BUILT:
        if mode.name in missing.modes:
            groups[missing.group].add(_not_built(missing), missing.aliases)
    root.add_command(_version(mode))
    root.add_command(completion.command(root))
    root.add_command(_help(root))
    if mode.name in "ACR":
        groups["get"].add_command(_feature_gates(mode))
    for name in ("get", "query", "egress"):
        if groups[name].commands:
            root.add_command(groups[name])
    return root


def _tell_of_other_modes(groups: dict[str, Group]) -> None:
    """Give each group the commands of all modes, for its message on one that it lacks."""
    for row in COMMANDS:
        groups[row.group].elsewhere |= dict.fromkeys((row.name, *row.aliases), row.modes)
    for action in ACTIONS:
        groups[action.group].elsewhere |= dict.fromkeys((action.name, *action.aliases), action.modes)


def _global_options() -> list[click.Parameter]:
    return [
        click.Option(["-k", "--kubeconfig"], type=click.Path(), help="path of the kubeconfig file"),
        click.Option(["-s", "--server"], help="host:port of the API server, instead of the default one"),
        click.Option(
            ["-t", "--timeout"], default="0", help="time limit such as 10s; 0: none", show_default=True
        ),
        click.Option(["-v", "--verbose"], is_flag=True, help="print requests to stderr"),
        click.Option(
            ["--token-file"],
            type=click.Path(path_type=Path),
            default=TOKEN_FILE,
            show_default=True,
            help="file with the token of the API server",
        ),
        click.Option(["--context"], default="", help="context of the kubeconfig"),
        click.Option(["--cluster"], default="", help="cluster of the kubeconfig, instead of the context's"),
        click.Option(["--user"], default="", help="user of the kubeconfig, instead of the context's"),
        click.Option(["--as", "as_user"], default="", help="user to impersonate"),
        click.Option(
            ["--as-group", "as_groups"], multiple=True, help="group to impersonate; may be repeated"
        ),
        click.Option(["--as-uid"], default="", help="UID to impersonate"),
        click.Option(["--token"], default="", help="bearer token for kube-apiserver"),
        click.Option(
            ["--insecure-skip-tls-verify", "insecure"],
            is_flag=True,
            help="do not verify the certificate of kube-apiserver",
        ),
        click.Option(
            ["--request-timeout"],
            default="0",
            show_default=True,
            help="time limit of each request to kube-apiserver, such as 10s; 0: that of the command",
        ),
    ]


class Target(NamedTuple):
    """The server that the global options name."""

    mode: Mode
    kubeconfig: str | None
    server: str | None
    seconds: float | None
    verbose: bool
    token_file: Path
    override: Override = Override()
    """Options that replace fields of the kubeconfig."""
    request_seconds: float | None = None
    """Limit of each request to kube-apiserver; None: that of the command."""

    def find(self) -> Server:
        """The API of this Pod's program, or kube-apiserver. Raises Failure."""
        if self.mode.server:
            access = loopback(self.server or self.mode.server, self.token_file)
            return Server(access, self.seconds, self.verbose)
        return self.kubernetes(self.seconds)

    def kubernetes(self, seconds: float | None) -> Server:
        """kube-apiserver, from a Pod of a program, too; `seconds` limits each request unless --request-timeout does. Raises Failure."""
        from antrea.antctl.remote import cluster  # noqa: PLC0415 (start-up time)

        # in the Pod of a program --server is the address of its API
        override = self.override._replace(server="") if self.mode.server else self.override
        return Server(cluster(self.kubeconfig, override), self.request_seconds or seconds, self.verbose)


def _remember_target(mode: Mode) -> Any:
    @click.pass_context
    def callback(
        ctx: click.Context, /, kubeconfig: str, server: str | None, timeout: str, verbose: bool, token_file: Path,
        request_timeout: str, **fields: Any,
    ) -> None:  # fmt: skip
        override = Override(server=server or "", **fields)
        seconds, request_seconds = _seconds(timeout), _seconds(request_timeout, "--request-timeout")
        ctx.obj = Target(mode, kubeconfig, server, seconds, verbose, token_file, override, request_seconds)

    return callback


def _seconds(timeout: str, flag: str = "-t, --timeout") -> float | None:
    """Seconds of a duration; None for 0. A number without unit is one of seconds for --request-timeout, as for kubectl."""
    if timeout == "0":
        return None
    from antrea.config.shape import seconds  # noqa: PLC0415 (start-up time)

    is_plain = flag == "--request-timeout" and timeout.isdecimal()
    try:
        return seconds(f"{timeout}s" if is_plain else timeout) or None
    except ValueError as error:
        raise Failure(f'invalid argument "{timeout}" for "{flag}" flag: {error}') from error


def _server() -> Server:
    target: Target = click.get_current_context().obj
    return target.find()


def _output_option(default: str) -> click.Option:
    return click.Option(
        ["-o", "--output"], default=default, show_default=True, help=f"output format: {FORMATS}"
    )


def _data_command(row: DataCommand, mode: Mode) -> click.Command:
    def callback(**given: Any) -> None:
        form = given.pop("output", row.form)
        if form not in FORMATS.split("|"):
            raise Failure(f"unsupported format type: {form}")
        options = {
            key.replace("_", "-"): "" if value is True else value
            for key, value in given.items()
            if value not in (None, False)
        }
        answer = _answer(row, options)
        if isinstance(answer, str):
            echo(answer, nl=False)
        elif answer is not None and form == "table" and row.text:
            echo(row.text(answer), nl=False)
        elif answer is not None:
            echo(render(answer, form, row.columns, ordered=row.ordered), nl=False)

    flags = [
        click.Option(
            [flag.key.replace("-", "_"), f"--{flag.key}", *([f"-{flag.short}"] if flag.short else [])],
            is_flag=flag.is_bool,
            help=flag.help,
        )
        for flag in row.flags
    ]
    arguments: list[click.Parameter] = (
        [click.Argument([row.argument], required=False)] if row.argument else []
    )
    text = (row.long or row.short).replace("${component}", mode.component)
    return click.Command(
        row.name,
        context_settings=HELP,
        params=[*arguments, *flags, _output_option(row.form)],
        callback=callback,
        short_help=row.short,
        help=text + (f"\n\n\b\nExamples:\n{row.example}" if row.example else ""),
    )


def _answer(row: DataCommand, options: dict[str, str]) -> Any:
    """The server's answer to this command, in the shape that is printed."""
    try:
        body, server = row.body(options) if row.body else None, _server()
        if body is not None:
            answer = ask(server, f"/apis/{row.path}", {}, body)
        elif row.is_resource:
            name = options.get("name", "")
            answer = ask(server, f"/apis/{row.path}" + (f"/{name}" if name else ""), {})
        else:
            answer = ask(server, row.path, options)
        if row.pods and not answer.get("response"):
            _require_pods(server, row.pods(options))
        return row.shape(answer, options) if row.shape else answer
    except Invalid as error:
        raise Failure(str(error)) from error


def _require_pods(server: Server, pods: Iterable[PodOption]) -> None:
    """Raise Failure if one of the Pods does not exist; without the right to know nothing is raised."""
    is_controller = isinstance(server.access, Loopback)
    for pod in pods:
        query = {"namespace": pod.namespace, "pod": pod.name} if is_controller else {}
        path = "/endpoint" if is_controller else f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            ask(server, path, query)
        except ErrorResponse as error:
            if error.status == 404:
                raise Failure(f"--{pod.option}: Pod {pod.namespace}/{pod.name} does not exist") from error


def _not_built(row: NotBuilt) -> click.Command:
    name = " ".join(part for part in ("antctl", row.group, row.name) if part)

    def callback(**_: object) -> None:
        raise Failure(f"{name} is not built yet")

    return click.Command(
        row.name,
        context_settings={**HELP, "ignore_unknown_options": True},
        params=[click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)],
        callback=callback,
        short_help=f"{row.short} (not built yet)",
        help=f"{row.short}. Not built yet.",
    )


def _help(root: Group) -> click.Command:
    def callback(arguments: tuple[str, ...]) -> None:
        context = click.Context(root, info_name="antctl", help_option_names=HELP["help_option_names"])
        command: click.Command = root
        for word in arguments:
            if not isinstance(command, click.Group) or command.get_command(context, word) is None:
                raise Failure(f"unknown help topic {' '.join(arguments)!r}")
            _, subcommand, _ = command.resolve_command(context, [word])
            command = subcommand or command
            context = click.Context(command, info_name=command.name, parent=context)
        echo(command.get_help(context))

    return click.Command(
        "help",
        params=[click.Argument(["arguments"], nargs=-1, metavar="[COMMAND]...")],
        callback=callback,
        short_help="Help about any command",
        help="Help about any command, such as `antctl help get networkpolicy`",
    )


def _version(mode: Mode) -> click.Command:
    key = {"A": "agentVersion", "F": "flowAggregatorVersion"}.get(mode.name, "controllerVersion")

    def callback(output: str) -> None:
        versions = {"antctlVersion": f"v{VERSION}"}
        try:
            server_version = _told_version(mode)
        except Failure:
            echo(render(versions, output, (), ordered=False), nl=False)
            raise
        echo(render({key: server_version, **versions}, output, (), ordered=False), nl=False)

    return click.Command(
        "version",
        context_settings=HELP,
        params=[_output_option("yaml")],
        callback=callback,
        short_help="Print version information",
        help=f"Print version information of antctl and {mode.component}",
    )


def _told_version(mode: Mode) -> str:
    """The version of the program that is asked, the controller's from a workstation."""
    if mode is REMOTE:
        return str(ask(_server(), f"/apis/{CONTROLLER_INFO}", {}).get("version", ""))
    version = ask(_server(), "/version", {})
    return str(version["gitVersion"]) + "".join(
        sign + version[part]
        for sign, part in (("-", "gitCommit"), (".", "gitTreeState"))
        if version.get(part)
    )


def _feature_gates(mode: Mode) -> click.Command:
    def callback(output: str, insecure: bool = False) -> None:
        if output not in FORMATS.split("|"):
            raise Failure(f"unsupported format type: {output}")
        server = _server()
        if mode is REMOTE:
            from antrea.antctl.remote import controller  # noqa: PLC0415 (start-up time)

            server = controller(server, insecure=insecure)
        gates, warnings = ask_warned(server, "/featuregates")
        text = blocks(gates) if output == "table" else render(gates, output, (), ordered=False)
        echo(text, nl=False)
        for warning in warnings:
            echo(f"Warning: {warning}", err=True)

    params: list[click.Parameter] = [_output_option("table")]
    if mode is REMOTE:
        params.append(
            click.Option(["--insecure"], is_flag=True, help="do not verify the server's certificate")
        )
    return click.Command(
        "featuregates",
        context_settings=HELP,
        params=params,
        callback=callback,
        short_help="Print Antrea feature gates",
        help="Print feature gates and whether they are on",
    )


def main() -> None:
    """Entry point; exit code 0, or 1 if something failed or the command line is wrong."""
    antctl(mode_of(os.environ))(prog_name="antctl")


if __name__ == "__main__":
    main()

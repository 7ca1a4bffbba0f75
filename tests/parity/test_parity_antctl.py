"""Our antctl prints what upstream's v2.3.2 printed, when servers answer what they answered then ($ANTREA_GOLDEN).

Every recorded command is run. What differs on purpose is in DIFFERENT with its reason, and what we print there instead.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import pytest
import yaml
from click.testing import CliRunner

from antrea.antctl.main import antctl
from antrea.antctl.mode import mode_of
from antrea.outside.tls.server_context import load_pair, self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import Iterator

RAW = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere")) / "raw"
pytestmark = pytest.mark.skipif(
    not all((RAW / name).is_file() for name in ("antctl/get-networkpolicy.json", "http/version.json")),
    reason="ANTREA_GOLDEN names no answers of these names",
)

CONTROLPLANE = "/apis/controlplane.antrea.io/v1beta2"
TIME = re.compile(r"2026-11-21T\d\d:\d\d:\d\dZ")


class Difference(NamedTuple):
    """What differs on purpose: recordings by pattern, why, our exit code, and a pattern of what we print."""

    recordings: str
    why: str
    code: int
    prints: str


DIFFERENT = (
    Difference(
        r"antctl/query-endpoint",
        "upstream's asks kube-apiserver what only the controller knows; ours says that it is no command here",
        1,
        r'^Error: unknown command "endpoint" for "antctl query"\n',
    ),
    Difference(
        r"antctl/get-podinterface",
        "upstream's prints the help of `get` as if all were well",
        1,
        r'^Error: unknown command "podinterface" for "antctl get"\n',
    ),
    Difference(
        r"antctl/log-level",
        "ours says where the command is to be had",
        1,
        r'^Error: unknown command "log-level" for "antctl"\nPods of the agent have it: kubectl exec .*\nRun ',
    ),
    Difference(
        r"get-appliedtogroup\.(table|no-node-group\.table)",
        "upstream's panics on a group with a Node or a Service",
        0,
        r"^NAME +PODS +\n.*\nad39785f\S+ n1 +\n.*\nc8909062\S+ shop/api,shop/api +\n.*",
    ),
    Difference(r"get-appliedtogroup\.node", "the same", 0, r"^NAME +PODS\nad39785f\S+ n1 +\n$"),
    Difference(
        r"get-appliedtogroup\.service", "the same", 0, r"^NAME +PODS +\nc8909062\S+ shop/api,shop/api\n$"
    ),
    Difference(
        r"antctl/get-addressgroup\.table",
        "upstream's counts too few hidden values",
        0,
        r"\n946d5846\S+ 10\.244\.0\.2,10\.244\.0\.3,10\.244\.0\.4 \+ 3 more\.\.\. <NONE> ",
    ),
    Difference(
        r"inpod/get-featuregates\.table",
        "upstream's wants a kubeconfig in the controller's Pod; ours asks the controller",
        0,
        r"^Antrea Agent Feature Gates\nFEATUREGATE .*\n\nAntrea Controller Feature Gates\n",
    ),
    Difference(
        r"get-featuregates\.(json|yaml)", "upstream's has no option --output there", 0, r"component\W+agent"
    ),
    Difference(
        r"antctl/query-networkpolicyevaluation\.missing",
        "upstream's prints an empty row as for Pods without rules",
        1,
        r"^Error: --(source|destination): Pod \S+ does not exist\n$",
    ),
    Difference(
        r"inpod/version",
        "ours takes gitVersion of /version as it is; upstream's asks for the AntreaControllerInfo",
        0,
        r"""controllerVersion"?: "?2\.3\.2""",
    ),
    Difference(r"help\.txt", "the layout of help is our parser's, see below", 0, r"^Usage: antctl"),
)


class Recording(NamedTuple):
    """A command, its mode by the name of its Pod, and how it ended."""

    name: str
    pod: str
    words: list[str]
    code: int
    stdout: str
    stderr: str


def recording(name: str) -> Recording:
    head, *lines = (RAW / name).read_text(encoding="utf-8").splitlines(keepends=True)
    command = head.removeprefix("# $ ").split("    (")[0]
    given, _, rest = command.partition("antctl ")
    code, out, err = 0, "", ""
    for at, line in enumerate(lines):
        if line.startswith("# exit "):
            code = int(line.removeprefix("# exit "))
        elif line.startswith("# stderr:"):
            err = "".join(lines[at + 1 :])
            break
        else:
            out += line
    return Recording(name, given.strip().removeprefix("POD_NAME="), shlex.split(rest), code, out, err)


def body(name: str) -> str:
    return recording(name).stdout


def names(folders: str) -> list[str]:
    return sorted(
        str(path.relative_to(RAW)) for folder in folders.split() for path in (RAW / folder).glob("*")
    )


def group(shown: dict[str, Any]) -> dict[str, Any]:
    """The group of the API that antctl printed so."""
    members = []
    for member in [*shown.get("pods", []), *shown.get("nodes", [])]:
        ips = [
            base64.b64encode(ip_address(ip).packed).decode() for ip in member.get("ip", "").split(", ") if ip
        ]
        kept = {key: value for key, value in member.items() if key != "ip"}
        members.append(kept | ({"ips": ips} if ips else {}))
    return {"metadata": {"name": shown["name"]}, "groupMembers": members}


def missing(kind: str, name: str) -> tuple[int, Any]:
    message = f'{kind}.controlplane.antrea.io "{name}" not found'
    return 404, {"kind": "Status", "status": "Failure", "message": message}


class Upstream:
    """Answers of the controller and of kube-apiserver, as they were when `name` was recorded."""

    def __init__(self, name: str, port: int, ca: str) -> None:
        self.name = name
        self.port = port
        self.ca = ca

    def answer(self, path: str) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        if path.startswith(CONTROLPLANE):
            kind, _, name = path.removeprefix(f"{CONTROLPLANE}/").partition("/")
            return self._controlplane(kind, name)
        if path.endswith("/controllerinfos/antrea-controller"):
            return 200, {
                "kind": "AntreaControllerInfo",
                "metadata": {"name": "antrea-controller"},
                **self._info(),
            }
        if path == "/endpoint":
            return self._endpoint(query)
        simple = {
            "/version": "http/version.json",
            "/featuregates": "http/featuregates.json",
            "/loglevel": "http/loglevel.txt",
        }
        if path in simple:
            return 200, json.loads(re.sub("(?m)^#.*", "", (RAW / simple[path]).read_text()))
        return self._kubernetes(path)

    def _own(self, otherwise: str) -> Any:
        """What the recording itself shows, as upstream lists members in an order of chance; a table's is beside it."""
        own = {"json": self.name, "yaml": self.name}.get(self.name.rpartition(".")[2], otherwise)
        return yaml.safe_load(body(own)) if own.endswith("yaml") else json.loads(body(own))

    def _info(self) -> Any:
        info = self._own("antctl/get-controllerinfo.json")
        if "inpod/get" in self.name:
            counts = [int(cell) for cell in body(self.name).split()[-4:-1]]
            keys = ("networkPolicyNum", "addressGroupNum", "appliedToGroupNum")
            info["networkPolicyControllerInfo"] = dict(zip(keys, counts, strict=True))
        return info if "controllerConditions" in info else {"version": info["controllerVersion"]}

    def _controlplane(self, kind: str, name: str) -> tuple[int, Any]:
        if kind == "networkpolicyevaluation":
            return 201, self._own(f"{self.name.rpartition('.')[0]}.json")
        if kind == "networkpolicies":
            if "inpod" in self.name:
                return 200, json.loads(body("alpha-controlplane/networkpolicies.json"))
            items = self._own("antctl/get-networkpolicy.json")
        else:
            items = [group(one) for one in self._groups(kind[:-1])]
        if kind == "appliedtogroups" and self.name.endswith(".table"):
            # upstream's antctl does not show which Service a member is, so this is from the API itself
            items = json.loads(body("controlplane/appliedtogroups.json"))["items"]
        if not name:
            return 200, {"items": items}
        found = [item for item in items if item["metadata"]["name"] == name]
        return (200, found[0]) if found else missing("networkpolicy", name)

    def _groups(self, kind: str) -> Any:
        if kind == "addressgroup" and "extra" in self.name:
            # of another cluster, which is known by its tables alone
            name, pods, nodes = re.split(r"(?<!,) +", body(self.name).splitlines()[1].strip())
            ends = {"pods": pods, "nodes": nodes}
            shown = {
                key: [{key[:-1]: {"name": "x"}, "ip": ip} for ip in re.split(",(?! )", cell)]
                for key, cell in ends.items()
                if cell != "<NONE>"
            }
            return [{"name": name, **shown}]
        return self._own(f"antctl/get-{kind}.json")

    def _endpoint(self, query: str) -> tuple[int, Any]:
        for case in ("db-1", "tester", "web-1"):
            if f"pod={case}" in query:
                return 200, self._own(f"antctl-inpod/query-endpoint.{case}.json")
        if "pod=" in query:
            return 404, "could not find any endpoints matching your selection\n"
        return 400, "pod must be provided\n"

    def _kubernetes(self, path: str) -> tuple[int, Any]:
        """What leads a workstation to the controller."""
        found: dict[str, Any] = {
            "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller": {
                "nodeRef": {"name": "n1"}, "podRef": {"namespace": "kube-system"}, "apiPort": self.port,
            },
            "/api/v1/nodes/n1": {"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}},
            "/api/v1/namespaces/kube-system/configmaps/antrea-ca": {"data": {"ca.crt": self.ca}},
        }  # fmt: skip
        return (200, found[path]) if path in found else (404, "404 page not found\n")


@contextmanager
def serving(name: str, pair: Any) -> Iterator[int]:
    """A server that answers as upstream's; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = Upstream(name, server.server_port, pair.certificate_pem).answer(self.path)
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tls = server_tls(None)
    load_pair(tls, pair)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def pair() -> Any:
    return self_signed(("antrea.kube-system.svc", "localhost"), ("127.0.0.1",))


def ours(recorded: Recording, tmp_path: Path, pair: Any) -> tuple[int, str, str]:
    """Exit code, output and errors of our antctl, with our version said to be the recorded one."""
    (tmp_path / "token").write_text("secret")
    with serving(recorded.name, pair) as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        options = ["-k", str(tmp_path / "config"), "--token-file", str(tmp_path / "token")]
        if recorded.pod:
            options += ["-s", f"127.0.0.1:{port}"]
        mode = mode_of({"POD_NAME": recorded.pod})
        found = CliRunner().invoke(antctl(mode), [*recorded.words, *options], prog_name="antctl")
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    own = f"v{version('antrea')}"
    return found.exit_code, found.stdout.replace(own, "v2.3.2"), found.stderr


@pytest.mark.parametrize("name", names("antctl antctl-extra antctl-inpod"))
def test_parity_antctl_prints_what_upstreams_printed(name: str, tmp_path: Path, pair: Any) -> None:
    recorded = recording(name)
    code, out, err = ours(recorded, tmp_path, pair)
    for known in DIFFERENT:
        if re.search(known.recordings, name):
            assert (code, out, err) != recorded[-3:], f"no difference any more: {known.why}"
            assert code == known.code
            assert re.search(known.prints, out + err, re.DOTALL), out + err
            return
    assert (code, TIME.sub("TIME", out), err) == (
        recorded.code,
        TIME.sub("TIME", recorded.stdout),
        recorded.stderr,
    )


def flags(text: str) -> dict[str, str]:
    """Short names of options by their long ones, in recorded help, without those of all commands."""
    own = text.partition("\nFlags:\n")[2].partition("\nGlobal Flags:")[0]
    return {long: short for short, long in re.findall(r"(?m)^ +(?:(-\w), )?(--[\w-]+)", own)}


ONLY_UPSTREAM = {
    "antctl-help/query.txt": {"endpoint"},  # only the controller can answer it, and only in its Pod
}


def is_not_built(command: click.Command) -> bool:
    return "not built yet" in (command.help or "").lower()


@pytest.mark.parametrize("name", names("antctl-help antctl-help-in-agent antctl-help-in-controller"))
def test_parity_antctl_has_the_commands_and_options_of_upstreams(name: str) -> None:
    recorded = recording(name)
    words = recorded.words[:-1]
    found: click.Command = antctl(mode_of({"POD_NAME": recorded.pod}))
    context = click.Context(found, info_name="antctl")
    for word in words:
        if is_not_built(found) or found.name == "completion":
            # its shells are an argument of ours, and PowerShell is none of them
            return
        assert isinstance(found, click.Group)
        _, command, _ = found.resolve_command(context, [word])
        assert command is not None
        found, context = command, click.Context(command, parent=context, info_name=word)
    if is_not_built(found) or found.name == "completion":
        return
    shown = recorded.stdout.partition("Available Commands:\n")[2].partition("\n\n")[0]
    theirs = set(re.findall(r"(?m)^  (\S+) ", shown)) - ONLY_UPSTREAM.get(name, set())
    mine = set(found.list_commands(context)) if isinstance(found, click.Group) else set()
    assert theirs - mine == set()
    ours = {option: param.opts for param in found.get_params(context) for option in param.opts}
    for long, short in flags(recorded.stdout).items():
        assert long in ours
        assert not short or short in ours[long] or long == "--help"

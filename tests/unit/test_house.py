"""The rules of the house that no linter knows."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    p for top in ("antrea", "lab", "tests", "benchmarks", "build") for p in (ROOT / top).rglob("*.py")
)
RECIPES = frozenset((".py", ".md", ".sh", ".mod", ".yaml", ".yml", ""))
"""Suffixes of files that people and programs run or read for how to build something."""
BANNED = ("utils", "helpers", "common", "misc", "manager", "base")
METAPHORS = {
    "Abreast", "Aside", "Courier", "Crowd", "Cutting", "Desk", "Door", "Errand", "Heard", "Herald", "Home", "Knock", "Look",
    "Looker", "Outbox", "Parted", "Promise", "Purse", "Remembering", "Rumour", "Rumours", "Said", "Says", "Seeker", "Severed",
    "Sights", "Stranger", "Tell", "Told", "Turn", "Turns", "Voice", "Wiring", "Wish", "Word",
}  # fmt: skip
"""Words that names of classes do not contain; docs/glossary.md has the terms."""
FOREIGN = (
    "antrea/apis/",
    "antrea/config/",
    "lab/",
    "build/image_build/",
    "antrea/antctl/",
    "antrea/explain/",
)
"""Their names are those of Kubernetes' kinds, or are never read beside facts."""
PERSONIFIED = re.compile(
    r"\b(goodbye|hears?|heard|knocks?|knows|nobody|said|says?|somebody|speaks?|tells?|told|whoever)\b",
    re.IGNORECASE,
)

TAKES_CONNECTIONS = re.compile(
    r"\b(start_server|create_server|start_unix_server|create_unix_server|TCPSite|SockSite|UnixSite|HTTPServer|socketserver"
    r"|ThreadingHTTPServer|sock_accept|connect_accepted_socket)\b|\.accept\(\)|\.listen\(([0-9]+|[A-Z_]+)?\)"
)
OTHER_LISTENERS = {
    "antrea/agent/cni/server.py": "a Unix socket that only root opens",
    "antrea/features/l7_network_policy/agent_part/verdict_log.py": "a Unix socket in a folder of root",
    "antrea/outside/request_engine/session.py": "a Unix socket in a folder of root",
    "antrea/outside/gossip/transport.py": "makes a socket that outside/gossip/stream.py passes to a SessionServer",
    "antrea/features/node_port_local/agent_part/part.py": "keeps a port from other programs and takes nothing from it",
    "antrea/antctl/proxy/server.py": "runs on a user's machine, and all its clients have that user's rights",
    "antrea/antctl/check/workload.py": "a test Pod",
}
"""Modules that take connections in another way, and why they may."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


PRODUCT = [path for path in SOURCES if named(path).startswith(("antrea/", "lab/", "build/image_build/"))]
"""The product, and the lab beside it, whose modules follow the same rules."""


class Read(NamedTuple):
    """What the rules are about; trees of all files at once would cost the collector much."""

    functions: dict[str, int]
    """Lines by name, of functions and methods."""
    docstring: str | None
    imports: list[str]
    classes: dict[str, tuple[str, ...]]
    """The bases by name; one that has a rank is an entry."""
    prose: list[str]
    """All docstrings."""


@cache
def read(path: Path) -> Read:
    tree = ast.parse(path.read_text())
    functions, imports = dict[str, int](), list[str]()
    classes, prose = dict[str, tuple[str, ...]](), [ast.get_docstring(tree) or ""]
    for node in nodes(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            prose.append(node.value.value)
        if isinstance(node, ast.ClassDef):
            bases = (base.id for base in node.bases if isinstance(base, ast.Name))
            ranks = ("rank" for one in node.body if named_statement(one) == "rank")
            classes[node.name] = (*bases, *ranks)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno
            functions[node.name] = max(lines, functions.get(node.name, 0))
        elif isinstance(node, ast.ImportFrom):
            imports.append(node.module or "")
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
    return Read(functions, ast.get_docstring(tree), imports, classes, prose)


def named_statement(node: ast.stmt) -> str:
    """What an attribute with a type, or a method, is called."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return node.name if isinstance(node, ast.FunctionDef) else ""


def nodes(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement beneath `tree`; expressions, which are most of it, have none in them."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            yield node
            yield from nodes(node)


def test_house_no_file_is_longer_than_500_lines() -> None:
    lengths = {named(path): path.read_text().count("\n") for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_house_no_function_is_longer_than_50_lines() -> None:
    long = {
        f"{named(path)}: {name}": lines + 1
        for path in SOURCES
        for name, lines in read(path).functions.items()
        if lines >= 50
    }
    assert long == {}


def test_house_a_module_says_its_purpose() -> None:
    assert [named(path) for path in PRODUCT if not read(path).docstring] == []


def test_house_a_module_has_a_name_that_says_something() -> None:
    vague = [
        named(path)
        for path in PRODUCT
        if path.stem in BANNED or path.stem.endswith(("_utils", "_helpers", "_controller", "_manager"))
    ]
    assert vague == []


def test_house_production_code_does_not_import_tests_or_benchmarks() -> None:
    imports = [
        f"{named(path)}: {name}"
        for path in PRODUCT
        for name in read(path).imports
        if name.split(".")[0] in ("tests", "benchmarks")
    ]
    assert imports == []


def test_house_programs_that_build_take_nothing_from_the_lab() -> None:
    """import-linter knows packages only: image_build, and none of the programs beside it."""
    programs = [path for path in SOURCES if named(path).startswith("build/")]
    assert [
        named(path) for path in programs if any(n.split(".")[0] == "lab" for n in read(path).imports)
    ] == []
    assert len(programs) > 10


BENCHMARKS_IN_TESTS = {
    "tests/host/test_host_proxy_api_away.py": "starts an agent on the Node that benchmarks measure with",
}
"""Tests that import a benchmark, and why they may."""


def test_house_tests_share_modules_of_tests_and_not_benchmarks() -> None:
    importing = {
        named(path)
        for path in SOURCES
        if named(path).startswith("tests/")
        and any(name.startswith("benchmarks") for name in read(path).imports)
    }
    assert importing == BENCHMARKS_IN_TESTS.keys(), "move what both need to tests/shared"


def test_house_production_code_does_not_use_wait_for_which_loses_cancellations_in_python_3_11() -> None:
    used = [named(path) for path in PRODUCT if "asyncio.wait_for(" in path.read_text()]
    assert used == [], (
        "use asyncio.timeout: a task that is cancelled as wait_for ends goes on for ever (fixed in 3.12)"
    )


def test_house_a_module_that_is_run_is_never_one_of_the_working_directory() -> None:
    """Without -P `python -m` imports whatever lies in the folder that the user happens to be in."""
    started = re.compile(
        r"""(sys\.executable|PYTHON)\}?(",|,)? ?"?-m\b|\bpython3? -m (venv|antrea)|PYTHON" -m"""
    )
    scripts = [
        path for top in ("scripts", "build", "cni") for path in (ROOT / top).rglob("*") if path.is_file()
    ]
    files = {
        *PRODUCT,
        *(path for path in scripts if not {"__pycache__", "out"} & set(path.parts)),
        ROOT / "Makefile",
    }
    found = [
        f"{named(path)}: {line.strip()}"
        for path in sorted(files)
        for line in path.read_text(errors="replace").splitlines()
        if started.search(line) and '"pytest"' not in line and "`python -m" not in line
    ]
    assert found == []


def test_house_connections_are_taken_by_the_bounded_listener_alone() -> None:
    taking = {named(path) for path in PRODUCT if TAKES_CONNECTIONS.search(path.read_text())}
    found = {name for name in taking if not name.startswith(("antrea/outside/listener/", "lab/"))}
    assert found == OTHER_LISTENERS.keys(), (
        "serve with antrea.outside.listener.listener.Listener, or with SessionServer"
    )


def test_house_nothing_builds_programs_of_upstream() -> None:
    """A benchmark or a test that compares with one takes the path of a program that is there."""
    tops = ("antrea", "lab", "tests", "benchmarks", "build", "scripts", "docs", ".ci")
    files = [
        path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in RECIPES and path.is_file()
    ]
    recipe = re.compile(
        r"antrea\.io/antrea/|github\.com/antrea-io/antrea\b(?=[@\"' ])|\./cmd/(?:antrea|flow-aggregator)"
    )
    found = {
        named(path) for path in (*files, ROOT / "Makefile") if recipe.search(path.read_text(errors="replace"))
    }
    assert len(files) > 1000
    assert found - {named(Path(__file__))} == set()


def test_house_names_of_classes_are_no_metaphors() -> None:
    words = {
        f"{named(path)}: {name}"
        for path in PRODUCT
        for name in read(path).classes
        if METAPHORS & set(re.findall(r"[A-Z][a-z]*", name))
    }
    assert words == set(), "docs/glossary.md has the terms"


def test_house_facts_acts_and_entries_have_names_of_their_own() -> None:
    """Units are found by grepping for them."""
    found = [
        (name, bases)
        for path in PRODUCT
        if not named(path).startswith(FOREIGN)
        for name, bases in read(path).classes.items()
    ]
    kinds = {"Fact", "Act", "rank"}
    while more := {name for name, bases in found if kinds & set(bases)} - kinds:
        kinds |= more
    counts = Counter(name for name, _ in found)
    assert {name for name in kinds if counts[name] > 1} == set()


def test_house_functions_of_units_have_names_of_their_own() -> None:
    features = [
        path for path in PRODUCT if named(path).startswith("antrea/features/") and "_part" not in named(path)
    ]
    units = {name for path in features for name in re.findall(r"\bUnit\(\w+, (\w+)", path.read_text())}
    counts = Counter(
        name
        for path in features
        for name in re.findall(r"^def (\w+)\(\w+: Facts\b", path.read_text(), re.MULTILINE)
    )
    assert len(units) > 80
    assert {name for name in units if counts[name] > 1} == set()


def test_house_log_sentences_have_no_personification() -> None:
    sentences = {
        f"{named(path)}: {sentence}"
        for path in PRODUCT
        for sentence in re.findall(
            r"\blog\.(?:v\(\d\)\.)?(?:info|warning|error)\(\s*f?\"([^\"]*)\"", path.read_text()
        )
        if PERSONIFIED.search(sentence)
    }
    assert sentences == set()


def test_house_docstrings_have_no_personification() -> None:
    prose = {
        f"{named(path)}: {text}" for path in PRODUCT for text in read(path).prose if PERSONIFIED.search(text)
    }
    assert prose == set()


DECODING = ROOT / "antrea/decoding.py"
DECODERS = {
    "loads",
    "load",
    "load_all",
    "safe_load",
    "safe_load_all",
    "b64decode",
    "FromString",
    "ParseFromString",
}
"""Names of functions that decode; `decode` and msgspec's `convert` have cases of their own."""
DECODER_CALL = re.compile(rf"\b({'|'.join(sorted(DECODERS))}|decode|convert)\(")
ENCODERS = {"encode", "b64encode", "generate_latest"}
"""What these return can be decoded."""


def is_decoder(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return isinstance(function, ast.Name) and function.id in {*DECODERS, "decode"}
    if function.attr == "decode":
        made = function.value.func if isinstance(function.value, ast.Call) else None
        encoded = isinstance(made, ast.Attribute) and made.attr in ENCODERS
        return not encoded and all(one.arg != "errors" for one in call.keywords)
    if function.attr == "convert":
        return isinstance(function.value, ast.Name) and function.value.id == "msgspec"
    return function.attr in DECODERS


def decoders_in_try(node: ast.AST, *, caught: bool = False) -> Iterator[int]:
    """Lines of calls of decoders whose errors a `try` or `suppress` around them is to catch, by name."""
    for child in ast.iter_child_nodes(node):
        within = caught and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Try):
            within |= bool(node.handlers) and child in node.body
        elif isinstance(node, ast.With):
            within |= "suppress(" in ast.unparse(node.items[0])
        if within and isinstance(child, ast.Call) and is_decoder(child):
            yield child.lineno
        yield from decoders_in_try(child, caught=within)


def test_house_only_antrea_decoding_calls_a_decoder_inside_a_try() -> None:
    """A decoder raises more than the `except` beside it names: RecursionError ended the agent, by an annotation of a tenant."""
    calls = [
        f"{named(path)}:{line}"
        for path in PRODUCT
        if path != DECODING and DECODER_CALL.search(text := path.read_text())
        for line in decoders_in_try(ast.parse(text))
    ]
    assert calls == [], "use antrea.decoding, which raises Invalid for everything that a decoder raises"


def test_house_no_except_names_the_errors_of_decoders() -> None:
    """A list of them is narrower than what a decoder raises; reading a file as text raises OSError or UnicodeDecodeError only."""
    errors = re.compile(
        r"(except|suppress\().*\b(DecodeError|RecursionError|YAMLError|MsgspecError|JSONDecodeError|binascii)\b"
    )
    lists = [
        f"{named(path)}: {line.strip()}"
        for path in PRODUCT
        if path != DECODING
        for line in path.read_text().splitlines()
        if errors.search(line)
    ]
    assert lists == [], "use antrea.decoding"


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    msgspec.json.decode(text)\nexcept ValueError:\n    pass",
        "try:\n    with file:\n        found = [json.loads(one) for one in file]\nexcept ValueError:\n    pass",
        "with contextlib.suppress(ValueError):\n    msgspec.convert(tree, Kind)",
        "try:\n    data.decode()\nexcept UnicodeDecodeError:\n    pass",
    ],
)
def test_house_finds_a_decoder_inside_a_try(source: str) -> None:
    assert list(decoders_in_try(ast.parse(source)))


def test_house_leaves_encoders_to_a_try() -> None:
    source = "try:\n    msgspec.json.encode(one).decode()\n    data.decode(errors='replace')\nexcept OSError:\n    json.loads(text)"
    assert not list(decoders_in_try(ast.parse(source)))


def test_house_only_one_module_uses_h2s_connection() -> None:
    """It raises UnicodeDecodeError, among others: antrea.outside.grpc.http2 guards it."""
    users = [named(path) for path in PRODUCT if "h2.connection" in read(path).imports]
    assert users == ["antrea/outside/grpc/http2.py"]


EXCEPTION_NAMES = {"error", "group"}
"""What an exception, and a group of them, is bound to; another word makes a reader look for its meaning."""


def test_house_exceptions_are_bound_to_the_name_error() -> None:
    others = [
        f"{named(path)}:{node.lineno}"
        for path in SOURCES
        for node in nodes(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and node.name and node.name not in EXCEPTION_NAMES
    ]
    assert others == []


LIMIT_NAMES = re.compile(r"_?(MOST|LONGEST|LARGEST|LEAST|PATIENCE|AT_ONCE)(_|\b)")
"""Names of limits with other words than MAX_, MIN_ and TIMEOUT."""


def test_house_limits_are_named_max_min_and_timeout() -> None:
    left = [
        f"{named(path)}:{name.lineno} {name.id}"
        for path in SOURCES
        for node in nodes(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and LIMIT_NAMES.match(name.id)
    ]
    assert left == []

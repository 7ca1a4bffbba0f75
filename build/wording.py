"""List wordings that the house replaces: docs/glossary.md has the terms to use instead.

`python build/wording.py [FORM]` prints their places; tests/unit/test_house_wording.py refuses them.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
PACKAGES = ("antrea", "lab", "build/image_build")
"""Folders whose modules are read: the product's, the lab's, and those that the lab and the image builder share."""

OPENINGS = ("As", "By", "From", "Of", "That", "Those", "Until", "What", "Who", "Whose")
"""First words of docstrings that continue the name above them instead of standing alone."""
BINDINGS = frozenset(("asked", "found", "one", "own", "told", "words"))
"""Names of variables and parameters that do not say which thing they are."""
FUNCTIONS = frozenset(
    (
        "asked", "because", "begun", "believe", "came", "everybody", "found", "give", "give_back", "gone", "hear", "heard", "knock",
        "know", "learnt", "look", "meant", "nobody", "nothing", "own", "said", "saw", "say", "says", "see", "seen", "some", "take",
        "tell", "telling", "there", "told", "went", "what", "where", "who", "whose", "why", "wishes", "word", "words",
    )
)  # fmt: skip
"""Names of functions that are neither a verb with its object nor a noun of the field; a leading underscore does not count."""
PHRASES = {
    "octet": re.compile(r"\boctets?\b(?!-stream)", re.IGNORECASE),
    "is no": re.compile(r"(?<!there )\b(is|are) no (?!longer\b|more\b)", re.IGNORECASE),
    "goes on": re.compile(r"\b(goes|go|went|going) on\b"),
    "realis-": re.compile(r"\b(un)?realis", re.IGNORECASE),
    "look-up": re.compile(r"\blook-ups?\b", re.IGNORECASE),
    "records of connections": re.compile(r"\brecords of connections\b", re.IGNORECASE),
    "that stand": re.compile(r"\b(that|which) stands?\b(?! for\b)"),
    "last word": re.compile(r"\blast word\b", re.IGNORECASE),
}
"""Phrases by the form that they count for; those of pages, docstrings and strings alike."""
HEADING = re.compile(r"(What|Who|Whose|That|Those|How to report a hole)\b")
"""The beginning of headings that are no noun phrases."""
MAX_WORDS = 40
"""Of a sentence of a page; the guides of Kubernetes and of technical English ask for 20 to 25."""
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z\"`])")
RIDDLE = re.compile(r"\b(its|knock|last word|odd|question|says|what)\b", re.IGNORECASE)
"""Words of names of tasks that do not name what the task does."""
REASON = re.compile(r"([A-Z][a-z0-9]+|[A-Z]+(?=[A-Z]|\b))+")
"""The reason of an Event or a condition, as Kubernetes spells them."""
NO_REASON = re.compile(r"([A-Z][a-z]+)*(Understood|Told|Said|Heard|Knows|Doubted|Odd)([A-Z][a-z]+)*")
"""Reasons that describe a person."""
LABEL_NAMES = frozenset(("known", "of", "what", "which", "why", "how"))
"""Labels of metrics that no exporter would have."""
MODULE = re.compile(r"(?<![\w/.-])(?:antrea|benchmarks|build|cni|lab|scripts|tests)/[\w./]*\w\.(?:py|c|sh)\b")
OUTSIDE_PATH = ("antrea/features/x/",)
"""Examples of paths, x standing for a feature."""
MARKDOWN = MarkdownIt("commonmark").enable("table")


class Place(NamedTuple):
    """A wording to replace, where it is."""

    form: str
    at: str


def places() -> list[Place]:
    """Return all wordings to replace, of the modules of `PACKAGES` and of the pages."""
    sources = (path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py")))
    modules = (place for path in sources for place in _of_module(path))
    pages = (place for path in sorted((ROOT / "docs").glob("*.md")) for place in _of_page(path))
    return [*modules, *pages]


def _of_page(path: Path) -> Iterator[Place]:
    """Yield the places of a page of docs/, whose blocks of code and tables' rulers are no prose."""
    heading = False
    for token in MARKDOWN.parse(path.read_text()):
        if token.type != "inline":
            heading = token.type == "heading_open"
            continue
        at = f"{_name(path)}:{(token.map or [0])[0] + 1}"
        prose = "".join(_spoken(child) for child in token.children or ())
        yield from (Place(form, at) for form, _ in _phrases(prose))
        if heading and HEADING.match(prose):
            yield Place("heading", at)
        for sentence in SENTENCE_END.split(prose):
            if len(sentence.split()) > MAX_WORDS:
                yield Place(f"sentence of more than {MAX_WORDS} words", at)


def _spoken(token: Token) -> str:
    """Return the text of an inline token; code is one word, as it is read."""
    return "`code`" if token.type == "code_inline" else " " if token.type == "softbreak" else token.content


def _of_module(path: Path) -> Iterator[Place]:
    for node in ast.walk(ast.parse(path.read_text())):
        for form in _forms(node):
            yield Place(form, f"{_name(path)}:{getattr(node, 'lineno', 1)}")


def _forms(node: ast.AST) -> Iterator[str]:
    """Yield the forms that a node of the syntax tree has, once for each occurrence."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(prose))):
            yield from _docstring_forms(prose)
        case ast.Constant(value=str(string)):
            yield from (form for form, _ in _phrases(string))
            if NO_REASON.fullmatch(string):
                yield "reason"
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in BINDINGS:
            yield f"binding {name}"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.lstrip("_") in FUNCTIONS:
            yield f"function {name.lstrip('_')}"
        case ast.Call():
            yield from _call_forms(node)
        case _:
            pass


def _docstring_forms(prose: str) -> Iterator[str]:
    opening = re.match(r"\w+", prose.strip())
    if opening and opening[0] in OPENINGS:
        yield f"docstring {opening[0]}"
    for path in MODULE.findall(prose):
        if not path.startswith(OUTSIDE_PATH) and not (ROOT / path).is_file():
            yield "missing module"


def _call_forms(call: ast.Call) -> Iterator[str]:
    """Yield the forms of names of tasks, reasons of conditions and Events, and labels of metrics."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    keywords = {keyword.arg: _literal(keyword.value) for keyword in call.keywords if keyword.arg}
    if function == "create_task" and RIDDLE.search(keywords.get("name", "")):
        yield "task name"
    if function == "Condition" and not REASON.fullmatch(keywords.get("reason") or "None"):
        yield "reason"
    if function == "Sample":
        labels = (argument for argument in call.args if isinstance(argument, ast.Dict))
        keys = (_literal(key) for mapping in labels for key in mapping.keys if key)
        yield from ("metric label" for key in keys if key in LABEL_NAMES)


def _literal(node: ast.expr) -> str:
    """Return the constant text of a string or an f-string, "" of anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(value) for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _phrases(prose: str) -> Iterator[tuple[str, re.Match[str]]]:
    for form, pattern in PHRASES.items():
        for match in pattern.finditer(prose):
            yield f"phrase {form}", match


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def main(arguments: list[str]) -> None:
    """Print the places of all forms, or of one."""
    for place in places():
        if place.form in arguments or not arguments:
            print(f"{place.at}: {place.form}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Takes secrets out of what leaves the cluster in a support bundle: known values, and what looks like one by its name.

Line by line, because logs and dumps are large. When in doubt it takes out too much: a missing value can be asked for,
one that has left cannot be called back.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

GONE = "<redacted>"
SHORTEST = 6
"""Characters of a known secret; what is shorter would be found everywhere."""
_NAME = r"(?:pass(?:word|wd|phrase|code)?|secret|token|psk|pre-?shared-?key|api[-_]?key|private[-_]?key|access[-_]?key|client-key-data|credentials?|bearer)"
_HARMLESS = r"(?:_?-?(?:file|path|dir|name|names|ref|refs|review|reviews|namespace|url|ttl|expir\w*|audiences?|seconds|type|kind|mode|hash|key[-_]?ref))"
# taken whole or not at all, so that a long line takes time in proportion to its length
_KEY = rf"(?=[\w.\-/]*{_NAME})[\w.\-/]++"
_NAMED = re.compile(
    rf"(?P<key>(?<![\w.\-/]){_KEY})(?P<mark>\\?[\"']?\s*(?:[:=]|=>)\s*)"
    r"(?P<value>\\\"(?:(?!\\\").)*\\\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;}\])\"'][^\s,;}\])\"']*)",
    re.IGNORECASE,
)
_WHOLE_LINE = re.compile(
    rf"^(?P<head>\s*(?:- )?[\"']?(?P<key>{_KEY})[\"']?\s*:)(?P<value>.*)$", re.IGNORECASE
)
_FLAG = re.compile(rf"(?<![\w.\-/])(?P<flag>--?{_KEY})(?P<space>\s+)(?P<value>[^\s-]\S*)", re.IGNORECASE)
_SECRET_NAME = re.compile(rf"^(?!.*{_HARMLESS}$){_KEY}$", re.IGNORECASE)
_OWN_NAME = re.compile(r"^(?P<indent>\s*)(?:- )?[\"']?name[\"']?\s*:\s*[\"']?(?P<name>[\w.\-]+)[\"']?,?\s*$")
_ITS_VALUE = re.compile(r"^(?P<head>\s*(?:- )?[\"']?value[\"']?\s*:\s*)\S.*?(?P<tail>,?)\s*$")
_SCHEME = re.compile(
    r"\b(?P<scheme>bearer|basic|negotiate)\s+(?!<redacted>)[A-Za-z0-9+/=._~\-]{8,}", re.IGNORECASE
)
_JWT = re.compile(r"(?<![\w\-])eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*")
_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,20}://)[^\s/@\"']+@", re.IGNORECASE)
_PEM_INLINE = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?-----END [A-Z0-9 ]*PRIVATE KEY-----")
_PEM_BEGIN, _PEM_END = (
    re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"),
    re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY-----"),
)
_ENCODED_KEY = re.compile(r"LS0tLS1CRUdJTi[\w+/=]{40,}")
"""Base64 of a PEM block; what it is a block of, is not looked at."""
_WORDS = (
    *("pass", "secret", "token", "psk", "shared", "credential", "bearer", "apikey", "api-key", "api_key"),
    *("private", "accesskey", "access-key", "access_key", "key-data"),
)
"""One of them is in every name that `_NAME` finds: a look for them costs little, and most lines have none."""


def is_secret(name: str) -> bool:
    """Whether the value under this name is to be taken out."""
    return bool(_SECRET_NAME.match(name))


class Redaction:
    """Redaction of one file: it remembers a key or a block of several lines. `known` are secrets to find anywhere."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for secret in known for form in _forms(secret)}
        self._known = sorted(forms, key=len, reverse=True)
        self._in_key = False
        self._block: int | None = None
        """Indentation of a key whose value is on the lines below it."""
        self._next_value = False

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """The same number of lines or fewer, without line ends."""
        for line in lines:
            kept = self.line(line)
            if kept is not None:
                yield kept

    def line(self, line: str) -> str | None:
        """None: the line is within a private key."""
        if self._in_key:
            self._in_key = not _PEM_END.search(line)
            return None
        for secret in self._known:
            if secret in line:
                line = line.replace(secret, GONE)
        if self._block is not None:
            if (below := self._below(line, self._block)) is not None:
                return below
            self._block = None
        if self._next_value:
            self._next_value = False
            if match := _ITS_VALUE.match(line):
                return f"{match['head']}{GONE}{match['tail']}"
        return self._looked_at(line)

    def _below(self, line: str, indent: int) -> str | None:
        """A line of a value that began above; None: it ended there."""
        bare = line.lstrip()
        if not bare:
            return line
        depth = len(line) - len(bare)
        if depth < indent or (depth == indent and not bare.startswith("- ")):
            return None
        if re.match(r"[\"']?[\w.\-/]+[\"']?:(\s|$)|[\]}\[{],?$", bare):
            # a mapping: its keys are judged one by one
            return self._looked_at(line, nested=True)
        mark = "- " if bare.startswith("- ") else ""
        return f"{line[:depth]}{mark}{GONE}{',' if bare.endswith(',') else ''}"

    def _looked_at(self, line: str, *, nested: bool = False) -> str:
        lower = line.lower()
        line = self._without_forms(line, lower)
        if not any(word in lower for word in _WORDS):
            return line
        if (named := _OWN_NAME.match(line)) and is_secret(named["name"]):
            self._next_value = True
            return line
        whole = _WHOLE_LINE.match(line)
        if whole and is_secret(whole["key"]):
            return self._whole(line, whole, nested=nested)
        line = _FLAG.sub(_flag, line)
        return _NAMED.sub(_named, line)

    def _without_forms(self, line: str, lower: str) -> str:
        """The line without what looks like a secret whatever its name is."""
        if "-----BEGIN" in line:
            line = _PEM_INLINE.sub(GONE, line)
            if begun := _PEM_BEGIN.search(line):
                self._in_key = True
                line = line[: begun.start()] + GONE
        if "LS0tLS1CRUdJTi" in line:
            line = _ENCODED_KEY.sub(GONE, line)
        if "eyJ" in line:
            line = _JWT.sub(GONE, line)
        if "bearer " in lower or "basic " in lower or "negotiate " in lower:
            line = _SCHEME.sub(rf"\g<scheme> {GONE}", line)
        if "://" in line and "@" in line:
            line = _URL.sub(rf"\g<scheme>{GONE}@", line)
        return line

    def _whole(self, line: str, whole: re.Match[str], *, nested: bool) -> str:
        """A line that is one key and its value, as YAML and indented JSON have it."""
        value = whole["value"].strip()
        if re.fullmatch(r"|[\[{]|[|>][\d+-]*", value):
            if not nested:
                self._block = len(line) - len(line.lstrip())
            return line
        if value.startswith("{") and value.rstrip(",").endswith("}"):
            return whole["head"] + _NAMED.sub(_named, whole["value"])
        return f"{whole['head']} {GONE}{',' if value.endswith(',') else ''}"


def _named(match: re.Match[str]) -> str:
    value = match["value"]
    if not is_secret(match["key"]) or GONE in value or value in ("true", "false", "null", "{", "["):
        return match[0]
    for quote in ('\\"', '"', "'"):
        if value.startswith(quote):
            return f"{match['key']}{match['mark']}{quote}{GONE}{quote}"
    return f"{match['key']}{match['mark']}{GONE}"


def _flag(match: re.Match[str]) -> str:
    if not is_secret(match["flag"].lstrip("-")):
        return match[0]
    return f"{match['flag']}{match['space']}{GONE}"


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as Kubernetes writes it into a Secret."""
    secret = secret.strip()
    if len(secret) >= SHORTEST:
        yield secret
        yield base64.b64encode(secret.encode()).decode()


def of_environment(environ: Mapping[str, str]) -> list[str]:
    """The values of variables with names of secrets."""
    return [value for name, value in environ.items() if is_secret(name)]


def tree(node: Any) -> Any:
    """An object of Kubernetes without secrets: by keys, by names of variables, in arguments, and within texts."""
    if isinstance(node, dict):
        return {key: _member(node, key, value) for key, value in node.items() if not _copied(key)}
    if isinstance(node, list):
        return [GONE if _follows_flag(node, place) else tree(item) for place, item in enumerate(node)]
    if isinstance(node, str):
        return "\n".join(Redaction().lines(node.split("\n")))
    return node


def _member(parent: dict[str, Any], key: str, value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return (
            tree(value)
            if isinstance(value, dict) or not is_secret(key)
            else [_scalar(item) for item in value]
        )
    if isinstance(value, str) and value:
        variable = key == "value" and is_secret(str(parent.get("name", "")))
        if variable or is_secret(key):
            return GONE
    return tree(value)


def _scalar(value: Any) -> Any:
    return tree(value) if isinstance(value, (dict, list)) else GONE


def _follows_flag(arguments: list[Any], place: int) -> bool:
    """Whether the word before is an option that takes a secret."""
    before = arguments[place - 1] if place else None
    is_flag = isinstance(before, str) and before.startswith("-") and "=" not in before
    return is_flag and isinstance(arguments[place], str) and is_secret(str(before).lstrip("-"))


def _copied(key: str) -> bool:
    """A copy of the whole object as text, which has nothing that the object has not."""
    return key == "kubectl.kubernetes.io/last-applied-configuration"

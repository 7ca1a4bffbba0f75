"""Changes single values of a configuration file, and keeps its comments and order where its form allows."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import yaml

from antrea.decoding import guarded
from antrea.errors import Invalid


def value_of(text: str, path: str) -> Any:
    """Return the value at `path`, such as antreaProxy.proxyAll; None if it is not set. Raises Invalid."""
    value = guarded(path, yaml.safe_load, text)
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def with_value(text: str, path: str, value: str | bool) -> str:
    """The file with another value at `path`, of one or two keys. Raises Invalid."""
    tree = guarded(path, yaml.safe_load, text) or {}
    wanted = copy.deepcopy(tree)
    section, _, key = path.rpartition(".")
    place = wanted
    if section:
        place = wanted[section] = wanted.get(section) or {}
    place[key] = value
    edited = _edited(text, section, key, json.dumps(value))
    try:
        same = guarded(path, yaml.safe_load, edited) == wanted
    except Invalid:
        same = False
    return edited if same else yaml.safe_dump(wanted, sort_keys=False)


def _edited(text: str, section: str, key: str, value: str) -> str:
    if not section:
        line, pattern = f"{key}: {value}", rf"(?m)^{key}:.*$"
        return re.sub(pattern, line, text) if re.search(pattern, text) else f"{text.rstrip()}\n{line}\n"
    head = re.search(rf"(?m)^{section}:[ \t]*\n", text)
    if head is None:
        return f"{text.rstrip()}\n{section}:\n  {key}: {value}\n"
    end = re.compile(r"(?m)^\S").search(text, head.end())
    stop = end.start() if end else len(text)
    body = text[head.end() : stop]
    pattern = rf"(?m)^(\s+){key}:.*$"
    if re.search(pattern, body):
        body = re.sub(pattern, rf"\g<1>{key}: {value}", body)
    else:
        indent = re.match(r"[ \t]*", body)
        body = f"{(indent[0] if indent else '') or '  '}{key}: {value}\n{body}"
    return text[: head.end()] + body + text[stop:]

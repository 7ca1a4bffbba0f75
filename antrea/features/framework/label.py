"""Validation of label keys and values, with the API server's messages.

Source: k8s.io/apimachinery pkg/util/validation IsQualifiedName, IsValidLabelValue
"""

from __future__ import annotations

import re

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_VALUE = f"({_NAME})?"
_OBJECT_NAME = re.compile(_SUBDOMAIN)
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character"
)
_NAME_EXAMPLES = f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"  # two spaces: its words
_SUBDOMAIN_RULE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character"
    f" (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_VALUE_RULE = (
    f"a valid label must be an empty string or consist of{_NAME_RULE.removeprefix('must consist of')}"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)


def is_object_name(name: str) -> bool:
    """Whether an object can have this name (RFC 1123 subdomain); names of Namespaces are among these."""
    return len(name) <= 253 and _OBJECT_NAME.fullmatch(name) is not None


def key_faults(key: str) -> list[str]:
    """Return why `key` is not a qualified name; empty if it is."""
    parts = key.split("/")
    if len(parts) > 2:
        form = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_NAME_RULE} {_NAME_EXAMPLES} {form}"]
    faults = _prefix_faults(parts[0]) if len(parts) == 2 else []
    name = parts[-1]
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > 63:
        faults.append("name part must be no more than 63 characters")
    if not re.fullmatch(_NAME, name):
        faults.append(f"name part {_NAME_RULE} {_NAME_EXAMPLES}")
    return faults


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    faults = ["prefix part must be no more than 253 characters"] if len(prefix) > 253 else []
    return faults if re.fullmatch(_SUBDOMAIN, prefix) else [*faults, _SUBDOMAIN_RULE]


def value_faults(value: str) -> list[str]:
    """Return why `value` is not a label value; empty if it is."""
    faults = ["must be no more than 63 characters"] if len(value) > 63 else []
    return faults if re.fullmatch(_VALUE, value) else [*faults, _VALUE_RULE]

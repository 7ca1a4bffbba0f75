"""Membership of agents: the Secret with their keys, and the answer of the agent's /memberlist.

Source: upstream pkg/apis/resources.go, pkg/util/memberlistkeys/keys.go, pkg/agent/apis/types.go
"""

from __future__ import annotations

import base64

import msgspec

from antrea.decoding import decode_base64
from antrea.errors import Invalid

SECRET, KEYS = "antrea-memberlist-keys", "keys"
KEY_BYTES = (16, 24, 32)
"""Valid lengths of a key; ours have 32 bytes."""


def parse_keys(text: str) -> list[bytes]:
    """Keys in base64, one per line, the first one for sealing. Raises ValueError."""
    keys = []
    for place, line in enumerate(filter(None, map(str.strip, text.splitlines()))):
        try:
            key = decode_base64(line, "key")
        except Invalid as error:
            raise ValueError(f"key at index {place} is not valid base64: {error.why}") from error
        if len(key) not in KEY_BYTES:
            raise ValueError(f"key at index {place} is invalid: it has {len(key)} bytes, not 16, 24 or 32")
        keys.append(key)
    if not keys:
        raise ValueError("no key found")
    return keys


def format_keys(keys: list[bytes]) -> str:
    """One line for each."""
    return "".join(base64.b64encode(key).decode() + "\n" for key in keys)


class MemberAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One Node; `status` is Alive or Dead."""

    node_name: str = ""
    ip: str = ""
    status: str = ""

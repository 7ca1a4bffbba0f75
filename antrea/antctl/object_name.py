"""Names of objects that antctl makes of the names of others."""

from __future__ import annotations

import hashlib
import random
import string
from typing import Final

MAX_NAME: Final = 253
"""Characters of the name of an object: a DNS subdomain."""
HASH_LENGTH: Final = 10
SUFFIX_LENGTH: Final = 8


def object_name(text: str, *, unique: bool) -> str:
    """A name of at most MAX_NAME characters, with a random end if it is to be `unique`; a longer `text` ends in its hash."""
    suffix = ""
    if unique:
        # no secret: it only has to be free
        suffix = "-" + "".join(random.choices(string.ascii_lowercase + string.digits, k=SUFFIX_LENGTH))  # noqa: S311
    if len(text) + len(suffix) > MAX_NAME:
        mark = hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
        kept = text[: MAX_NAME - len(suffix) - len(mark) - 1].rstrip("-.")
        text = f"{kept}-{mark}"
    return text + suffix

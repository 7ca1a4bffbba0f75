"""Which release this is, without what importlib.metadata loads to read it: an e-mail parser and archives."""

from __future__ import annotations

import os
import sys


def version() -> str:
    """Such as 0.1.0, by the name of the folder in which pip, or our image, describes the package."""
    for place in sys.path:
        try:
            names = os.listdir(place)  # noqa: PTH208 (start-up time)
        except OSError:
            continue
        for name in names:
            if name.startswith("antrea-") and name.endswith(".dist-info"):
                return name.removeprefix("antrea-").removesuffix(".dist-info")
    import importlib.metadata  # noqa: PLC0415 (start-up time)

    return importlib.metadata.version("antrea")

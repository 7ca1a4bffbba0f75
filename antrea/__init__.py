"""A Kubernetes network plugin and security stack on Open vSwitch, drop-in compatible with Antrea."""

from typing import Final

VERSION: Final = "0.1.0"
"""Of the distribution as well. importlib.metadata would load an e-mail parser and archives to read it."""

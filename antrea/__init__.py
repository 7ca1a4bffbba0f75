"""A Kubernetes network plugin and security stack on Open vSwitch, drop-in compatible with Antrea."""

from typing import Final

VERSION: Final = "0.1.0"
"""Version of the distribution as well. importlib.metadata would load an e-mail parser and archives to read it."""
IMAGE: Final = "localhost/antrea-python"
"""Image of agent and controller, without its tag. A name below localhost is not pulled: nodes have it, or a registry of the user's."""

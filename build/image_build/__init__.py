"""Shared parts of the image builder and the lab: a cache by content, layers, image archives, commands with progress."""

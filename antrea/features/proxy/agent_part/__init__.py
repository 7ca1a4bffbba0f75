"""Effects of AntreaProxy on a Node."""

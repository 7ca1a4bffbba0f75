"""Effects of Traceflows on a Node."""

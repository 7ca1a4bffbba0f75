"""Effects of Traceflows in the controller."""

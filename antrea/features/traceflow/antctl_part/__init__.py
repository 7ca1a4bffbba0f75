"""`antctl traceflow`."""

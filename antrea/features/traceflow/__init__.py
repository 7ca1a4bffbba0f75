"""Traceflow: the path of one packet through the cluster."""

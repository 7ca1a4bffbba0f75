"""Traceflow: the way of one packet through the cluster."""

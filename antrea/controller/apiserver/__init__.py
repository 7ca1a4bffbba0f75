"""The process that serves the aggregated API."""

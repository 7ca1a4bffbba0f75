"""ClickHouse servers."""

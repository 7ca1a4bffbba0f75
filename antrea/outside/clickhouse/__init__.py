"""ClickHouse: servers elsewhere, and its engine in this process."""

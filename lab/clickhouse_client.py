#!/usr/bin/python3
"""clickhouse-client --query SQL --format FORMAT: prints the answer of clickhouse_server.py in the same Pod, with integers of 64 bits
as that program of ClickHouse 24 does it, in quotes."""

from __future__ import annotations

import argparse
import os
import sys
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen


def main() -> None:
    """Send one query to the ClickHouse server on this machine and print its answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", required=True)
    parser.add_argument("--format", default="TabSeparated")
    parser.add_argument("--date_time_output_format", default="simple")
    parser.add_argument("--http-port", type=int, default=8123)  # our own
    given = parser.parse_args()
    settings = f"output_format_json_quote_64bit_integers = 1, date_time_output_format = '{given.date_time_output_format}'"
    sql = f"{given.query} SETTINGS {settings} FORMAT {given.format}"
    headers = {"X-ClickHouse-Key": os.environ.get("CLICKHOUSE_PASSWORD", "")}
    url = f"http://127.0.0.1:{given.http_port}/?{urlencode({'query': sql})}"
    try:
        with urlopen(Request(url, data=b"", headers=headers), timeout=30) as answer:
            sys.stdout.buffer.write(answer.read())
    except HTTPError as error:
        sys.exit(error.read().decode())


if __name__ == "__main__":
    main()

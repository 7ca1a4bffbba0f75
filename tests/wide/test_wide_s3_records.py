"""versitygw, an S3 server that verifies signatures, takes flow records from who has the secret alone."""

from __future__ import annotations

import csv
import gzip
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from certificates import SERVER, made
from free_port import free_port

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import S3Uploader
from antrea.errors import Unavailable
from antrea.flow_aggregator.s3_output import COLUMNS, S3Output
from lab.go_build import GoModule, build

if TYPE_CHECKING:
    from collections.abc import Iterator

GATEWAY = GoModule(
    folder=Path(__file__).parent / "go" / "versitygw",
    version="v1.8.0",
    packages={"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
)
KEY, SECRET = "flows-key", "flows-secret-1"
TIMEOUT = 60.0
pytestmark = [pytest.mark.wide, pytest.mark.timeout(1200)]


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server with the bucket `flows`, below the folder `buckets`."""
    program = build(GATEWAY, ["versitygw"], print)["versitygw"]
    authority = made("authority", ca=True)
    (tmp_path / "system.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    pair = made("localhost", authority, usage=SERVER, names=("localhost",))
    (tmp_path / "tls.crt").write_text(pair.pem)
    (tmp_path / "tls.key").write_text(pair.key_pem)
    (tmp_path / "buckets/flows").mkdir(parents=True)
    port = free_port()
    words = ["--access", KEY, "--secret", SECRET, "--region", "eu-west-1", "--port", f"127.0.0.1:{port}"]
    files = ["--cert", f"{tmp_path}/tls.crt", "--key", f"{tmp_path}/tls.key", "posix", f"{tmp_path}/buckets"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([program, *words, *files], stdout=log, stderr=log) as server,
    ):
        try:
            _wait(port)
            yield f"https://localhost:{port}"
        finally:
            server.terminate()


def _wait(port: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "versitygw does not answer"
            time.sleep(0.1)
        else:
            return


async def test_wide_s3_records_come_with_the_right_secret_alone(gateway: str, tmp_path: Path) -> None:
    records = [FlowRecord(source_ip="fd00::5", source_transport_port=1000 + at) for at in range(500)]
    config = S3Uploader(bucket_name="flows", bucket_prefix="a b/east", region="eu-west-1")
    given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": gateway}
    with pytest.raises(Unavailable, match="403 Forbidden"):
        await S3Output(config, given | {"AWS_SECRET_ACCESS_KEY": "another"}).write(records)
    assert list((tmp_path / "buckets/flows").rglob("*.gz")) == []
    await S3Output(config, given).write(records)
    [file] = (tmp_path / "buckets/flows/a b/east").glob("records-*.csv.gz")
    rows = list(csv.reader(gzip.decompress(file.read_bytes()).decode().splitlines()))
    place = COLUMNS.index("sourceTransportPort")
    assert [int(row[place]) for row in rows] == [one.source_transport_port for one in records]

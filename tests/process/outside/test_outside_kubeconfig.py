"""Kubeconfig files: all their fields are used or refused by name, several are merged, and proxies carry the requests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from aiohttp import web
from loopback import answering

from antrea.antctl import remote, request
from antrea.antctl.failure import Failure
from antrea.apis.core import Node
from antrea.errors import Invalid
from antrea.outside.kube.access import Access, proxy_for
from antrea.outside.kube.client import Kube
from antrea.outside.kube.kubeconfig import kubeconfig
from antrea.outside.kube.override import Override
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NODE = "/api/v1/nodes/a"
CLUSTER = {"server": "https://192.0.2.1:6443"}


def written(path: Path, cluster: dict[str, Any] | None = None, **user: Any) -> Path:
    tree = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster or CLUSTER}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def part(path: Path, **sections: Any) -> Path:
    path.write_text(yaml.safe_dump(sections))
    return path


class ConnectProxy(NamedTuple):
    """An HTTP proxy that tunnels to wherever it is asked to, and remembers the head of each request."""

    url: str
    heads: list[str]


@contextlib.asynccontextmanager
async def tunnelling(target_port: int) -> AsyncIterator[ConnectProxy]:
    heads: list[str] = []
    open_writers: list[asyncio.StreamWriter] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        there, to_target = await asyncio.open_connection("127.0.0.1", target_port)
        open_writers.extend((writer, to_target))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, to_target), pipe(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield ConnectProxy(f"http://me:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}", heads)
    finally:
        server.close()
        for writer in open_writers:
            writer.close()


class Seen(NamedTuple):
    """A server that remembers path, query and headers of requests."""

    rows: list[web.Request]

    async def answer(self, asked: web.Request) -> web.Response:
        self.rows.append(asked)
        return web.json_response({"metadata": {"name": "a"}})


def test_kubeconfig_of_another_user_is_sent_as_headers_of_impersonation(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Scopes/a": ["b"]},
    }
    access = kubeconfig(written(tmp_path / "k", token="t", **fields))
    assert sorted(access.authorization().items()) == [
        ("Authorization", "Bearer t"),
        ("Impersonate-Extra-Scopes%2Fa", "b"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "jane"),
    ]
    assert dict(access.as_bearer("x").authorization()) == {"Authorization": "Bearer x"}


async def test_kubeconfig_of_another_user_reaches_the_server_by_both_clients(tmp_path: Path) -> None:
    seen = Seen([])
    async with answering(seen.answer) as url:
        fields: dict[str, Any] = {"as": "jane", "as-groups": ["dev", "ops"]}
        access = kubeconfig(written(tmp_path / "k", {"server": url}, token="t", **fields))
        async with Kube(access) as kube:
            await kube.get(NODE, Node)
        await asyncio.to_thread(request.ask, request.Server(access, 10), NODE, {})
    for one in seen.rows:
        assert one.headers.getall("Impersonate-Group") == ["dev", "ops"]
        assert (one.headers["Impersonate-User"], one.headers["Authorization"]) == ("jane", "Bearer t")
    assert len(seen.rows) == 2


async def test_kubeconfig_names_a_proxy_that_is_asked_instead_of_the_server(tmp_path: Path) -> None:
    seen = Seen([])
    async with answering(seen.answer) as url:
        cluster = {"server": "http://192.0.2.1:18081", "proxy-url": url.replace("://", "://me:secret@")}
        access = kubeconfig(written(tmp_path / "k", cluster, token="t"))
        async with Kube(access) as kube:
            await kube.get(NODE, Node)
        await asyncio.to_thread(request.ask, request.Server(access, 10), NODE, {})
    assert [(row.raw_path, row.headers["Proxy-Authorization"]) for row in seen.rows] == [
        (f"http://192.0.2.1:18081{NODE}", "Basic bWU6c2VjcmV0")
    ] * 2


async def test_kubeconfig_with_a_proxy_verifies_the_server_through_the_tunnel(tmp_path: Path) -> None:
    seen, certificate = Seen([]), self_signed(("kube-test",), ())
    (tmp_path / "ca").write_text(certificate.certificate_pem)
    async with (
        answering(seen.answer, server_tls(certificate)) as url,
        tunnelling(int(url.rpartition(":")[2])) as proxy,
    ):
        cluster = {
            **CLUSTER,
            "proxy-url": proxy.url,
            "certificate-authority": "ca",
            "tls-server-name": "kube-test",
        }
        access = kubeconfig(written(tmp_path / "k", cluster, token="t"))
        async with Kube(access) as kube:
            await kube.get(NODE, Node)
        await asyncio.to_thread(request.ask, request.Server(access, 10), NODE, {})
        other = kubeconfig(written(tmp_path / "k", {**cluster, "tls-server-name": "other"}, token="t"))
        with pytest.raises(Failure, match="certificate verify failed"):
            await asyncio.to_thread(request.ask, request.Server(other, 10), NODE, {})
    heads = [head.lower() for head in proxy.heads]
    assert [head.split(" http/")[0] for head in heads] == ["connect 192.0.2.1:6443"] * 3
    assert all("proxy-authorization: basic bwu6c2vjcmv0" in head for head in heads)
    assert len(seen.rows) == 2


@pytest.mark.parametrize(
    ("url", "configured", "environ", "proxy"),
    [
        ("https://a:6443", "", {}, ""),
        ("https://a:6443", "", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a:6443", "", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://a:6443", "", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http://a:6443", "", {"HTTP_PROXY": "http://p:1/"}, "http://p:1"),
        ("https://a:6443", "http://q:2", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://q:2"),
        *(
            (url, "", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": excluded}, "")
            for url, excluded in (
                ("https://a:6443", "*"),
                ("https://a:6443", "x, A"),
                ("https://a.b:6443", "b"),
                ("https://a.b:6443", ".b"),
                ("https://a.b:6443", "*.b"),
                ("https://a.b:6443", "b:6443"),
                ("https://10.1.2.3", "10.0.0.0/8"),
                ("https://[fd00::1]:6443", "fd00::0001"),
                ("https://[fd00::1]:6443", "[fd00::1]:6443"),
                ("https://localhost:6443", ""),
                ("https://127.0.0.2", ""),
                ("https://[::1]", ""),
            )
        ),
        *(
            (url, "", {"HTTPS_PROXY": "http://p:1", "no_proxy": excluded}, "http://p:1")
            for url, excluded in (
                ("https://b:6443", ".b"),
                ("https://ab:6443", "b"),
                ("https://a.b:6443", "b:443"),
                ("https://10.1.2.3", "11.0.0.0/8,10.1.2.30,10.0.0.0/x"),
            )
        ),
    ],
)
def test_proxy_of_a_request(url: str, configured: str, environ: dict[str, str], proxy: str) -> None:
    assert proxy_for(url, configured, environ) == proxy


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "https://p", "p:1", "http://", "http://p:port"])
def test_proxy_that_is_not_supported_is_refused_by_its_field(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(Invalid, match=r"clusters\[\]\.cluster\.proxy-url: is not a URL"):
        kubeconfig(written(tmp_path / "k", {**CLUSTER, "proxy-url": proxy}))
    if "://" in proxy:
        with pytest.raises(Invalid, match=r"^HTTPS_PROXY: is not a URL"):
            proxy_for("https://a", "", {"HTTPS_PROXY": proxy})


@pytest.mark.parametrize(
    ("cluster", "user", "says"),
    [
        ({}, {"username": "me", "password": "x"}, r"users\[\]\.user\.(username|password): is not supported"),
        ({}, {"auth-provider": {"name": "gcp"}}, r"users\[\]\.user\.auth-provider: is not supported"),
        ({}, {"as_group": ["x"]}, r"users\[\]\.user\.as_group: is not supported"),
        ({"insecure-skip-tls-verfy": True}, {}, r"clusters\[\]\.cluster\.insecure-skip-tls-verfy: is not"),
        ({"insecure-skip-tls-verify": "false"}, {}, r"clusters\[\]\.cluster: Expected `bool`, got `str`"),
        ({}, {"token": 5}, r"users\[\]\.user: Expected `str`, got `int`"),
        ({}, {"as-groups": ["dev"]}, r"users\[\]\.user\.as: is missing"),
        ({}, {"as": "a\r\nX-Header: b"}, "not printable ASCII"),
        ({}, {"client-certificate-data": "QQ=="}, "client-certificate and client-key are needed together"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority-data": "QQ=="},
            {},
            "insecure-skip-tls-verify: is set together with a certificate authority",
        ),
    ],
)
def test_kubeconfig_field_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], says: str
) -> None:
    with pytest.raises(Invalid, match=says):
        kubeconfig(written(tmp_path / "k", {**CLUSTER, **cluster}, **user), plugins=True)


def test_kubeconfig_fields_that_are_null_or_for_other_programs_do_not_matter(tmp_path: Path) -> None:
    cluster = {**CLUSTER, "extensions": [{"name": "minikube.sigs.k8s.io"}], "proxy-url": None}
    assert kubeconfig(written(tmp_path / "k", cluster, token="t", **{"as": None})) == Access(
        CLUSTER["server"], token="t"
    )


def test_kubeconfigs_of_a_list_are_merged_and_the_first_counts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca").write_text(f"CA {name}")
    context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
    one = part(
        tmp_path / "one/config",
        clusters=[{"name": "k", "cluster": {**CLUSTER, "certificate-authority": "ca"}}],
        users=[{"name": "other", "user": {"token": "t0"}}],
    )
    two = part(
        tmp_path / "two/config",
        **{"current-context": "c"},
        contexts=[context],
        clusters=[{"name": "k", "cluster": {"server": "https://other"}}],
        users=[{"name": "u", "user": {"token": "t2", "tokenFile": "token"}}],
    )
    (tmp_path / "empty").write_text("")
    names = ["", "/nonexistent", str(tmp_path / "empty"), str(one), str(one), str(two)]
    environ = {"KUBECONFIG": ":".join(names)}
    assert remote.cluster(None, Override(), environ) == Access(
        CLUSTER["server"], "CA one", token="t2", token_file=str(tmp_path / "two/token")
    )
    assert remote.cluster_name(None, Override(), environ) == "k"
    with pytest.raises(Failure, match=r"users: has no user named 'u'"):
        remote.cluster(
            None,
            Override(),
            {
                "KUBECONFIG": f"{part(tmp_path / 'three', **{'current-context': 'c'}, contexts=[context])}:{one}"
            },
        )


def test_kubeconfig_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    users = [{"name": "u", "user": {"token": token}} for token in "ab"]
    with pytest.raises(Invalid, match=r"users: has two entries named 'u'"):
        kubeconfig(part(tmp_path / "k", users=users))


def test_kubeconfig_of_depth_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("a: " + "[" * 20_000)
    with pytest.raises(Invalid, match="not YAML"):
        kubeconfig(tmp_path / "k")

"""The serving certificate's Secret and CA, against an API server on loopback that keeps objects."""

from __future__ import annotations

import asyncio
import base64
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, api_server, until
from certificates import SERVER, made

from antrea.controller.managed import certificates
from antrea.controller.managed.certificates import Provided, SelfSigned
from antrea.errors import Invalid
from antrea.features.network_policy.controller_part import part as policy_part
from antrea.features.network_policy.controller_part.part import create_default_tiers
from antrea.features.network_policy.tier import DEFAULT_TIERS
from antrea.outside.kube.ca_publisher import KINDS, CaPublisher
from antrea.outside.kube.leadership import Leadership
from antrea.outside.tls import authority
from antrea.outside.tls.server_context import Certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from antrea.outside.kube.client import Kube

SECRETS, MAPS = "/api/v1/namespaces/kube-system/secrets", "/api/v1/namespaces/kube-system/configmaps"
SECRET, CONFIG_MAP = f"{SECRETS}/antrea-controller-tls", f"{MAPS}/antrea-ca"
API_SERVICES, MUTATING, VALIDATING, CRDS = (kind.path for kind in KINDS)
CALLERS: dict[str, Any] = {
    f"{API_SERVICES}/v1beta2.controlplane.antrea.io": {"spec": {"group": "controlplane.antrea.io"}},
    f"{MUTATING}/crdmutator.antrea.io": {"webhooks": [{"name": "a", "clientConfig": {"caBundle": ""}}]},
    f"{VALIDATING}/crdvalidator.antrea.io": {
        "webhooks": [{"name": "b", "clientConfig": {"service": {"name": "antrea"}}}, {"name": "c"}]
    },
    f"{CRDS}/ippools.crd.antrea.io": {
        "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "b2xk"}}}}
    },
    f"{CRDS}/tiers.crd.antrea.io": {"spec": {}},
}


@asynccontextmanager
async def running(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def text(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def secret(pair: Certificate) -> dict[str, Any]:
    return {"data": {"tls.crt": text(pair.certificate_pem), "tls.key": text(pair.key_pem)}}


def held(server: ApiServer) -> Certificate:
    data = server.objects[SECRET]["data"]
    return Certificate(*(base64.b64decode(data[key]).decode() for key in ("tls.crt", "tls.key")))


def published(server: ApiServer) -> dict[str, Any]:
    """What each caller holds, by path, as base64."""
    found: dict[str, Any] = {}
    for path, one in server.objects.items():
        if path == CONFIG_MAP:
            found[path] = [text(one["data"]["ca.crt"])]
        elif "webhooks" in one:
            found[path] = [hook.get("clientConfig", {}).get("caBundle") for hook in one["webhooks"]]
        elif conversion := one.get("spec", {}).get("conversion"):
            found[path] = [conversion["webhook"]["clientConfig"]["caBundle"]]
        elif path.startswith(API_SERVICES):
            found[path] = [one["spec"].get("caBundle")]
    return found


def everywhere(server: ApiServer, pem: str) -> bool:
    wanted = {path: [text(pem)] for path in (*CALLERS, CONFIG_MAP) if "tiers" not in path}
    wanted[f"{VALIDATING}/crdvalidator.antrea.io"] *= 2
    return published(server) == wanted


@asynccontextmanager
async def publisher(kube: Kube) -> AsyncIterator[CaPublisher]:
    made = CaPublisher(kube, "kube-system")
    async with running(made.run()):
        yield made


async def test_a_ca_goes_to_all_who_call_us_and_to_nobody_else() -> None:
    async with api_server(CALLERS) as (server, kube), publisher(kube) as ours:
        ours.trust("PEM 1")
        await asyncio.wait_for(ours.settled(), 30)
        assert everywhere(server, "PEM 1")
        assert server.objects[CONFIG_MAP]["metadata"]["labels"] == {"app": "antrea"}
        assert server.objects[f"{CRDS}/tiers.crd.antrea.io"]["spec"] == {}
        spec = server.objects[f"{VALIDATING}/crdvalidator.antrea.io"]["webhooks"][0]["clientConfig"]
        assert spec["service"] == {"name": "antrea"}


async def test_what_holds_the_ca_is_not_written_again() -> None:
    async with api_server(CALLERS) as (server, kube), publisher(kube) as ours:
        ours.trust("PEM 1")
        await asyncio.wait_for(ours.settled(), 30)
        server.writes.clear()
        server.put(f"{MUTATING}/crdmutator.antrea.io", {"webhooks": []})
        server.drop(CONFIG_MAP)
        await until(lambda: CONFIG_MAP in server.objects)
        assert server.writes == [CONFIG_MAP]


async def test_a_new_ca_and_a_new_caller_are_both_seen_to() -> None:
    async with api_server(CALLERS) as (server, kube), publisher(kube) as ours:
        ours.trust("PEM 1")
        await asyncio.wait_for(ours.settled(), 30)
        ours.trust("PEM 2")
        await asyncio.wait_for(ours.settled(), 30)
        assert everywhere(server, "PEM 2")
        late = f"{API_SERVICES}/v1alpha1.stats.antrea.io"
        server.put(late, {"spec": {}})
        await until(lambda: server.objects[late]["spec"] == {"caBundle": text("PEM 2")})


async def test_writes_that_are_refused_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antrea.outside.kube.ca_publisher.RETRY_SECONDS", 0.05)
    async with api_server(CALLERS) as (server, kube), publisher(kube) as ours:
        server.refuse = "RBAC says no"
        ours.trust("PEM 1")
        await until(lambda: len(server.writes) > 1)
        server.refuse = ""
        await asyncio.wait_for(ours.settled(), 30)
        assert everywhere(server, "PEM 1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(certificates, "RETRY_SECONDS", 0.02)


PAIR = authority.make(("antrea",), ())
EXPIRING = authority.make(("antrea",), (), days=89)
LATER = made("antrea", ago=-30, days=395, usage=SERVER)


async def test_an_empty_cluster_gets_a_secret_a_file_and_a_published_ca(tmp_path: Path) -> None:
    file = tmp_path / "made" / "pair.pem"
    async with (
        api_server(CALLERS) as (server, kube),
        publisher(kube) as ours,
        running(SelfSigned(kube, ours, "kube-system", file).run()),
    ):
        await until(lambda: SECRET in server.objects and everywhere(server, held(server).certificate_pem))
        pair = held(server)
        assert (server.objects[SECRET]["type"], file.read_text()) == (
            "kubernetes.io/tls",
            pair.certificate_pem + pair.key_pem,
        )
        assert file.stat().st_mode & 0o777 == 0o600


async def test_a_pair_that_stands_in_the_secret_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "pair.pem"
    async with (
        api_server({**CALLERS, SECRET: secret(PAIR)}) as (server, kube),
        publisher(kube) as ours,
        running(SelfSigned(kube, ours, "kube-system", file).run()),
    ):
        await until(lambda: everywhere(server, PAIR.certificate_pem))
        assert file.read_text() == PAIR.certificate_pem + PAIR.key_pem
        assert SECRET not in server.writes


@pytest.mark.parametrize(
    "bad",
    [
        {"data": {}},
        {"data": {"tls.crt": "%%%", "tls.key": "%%%"}},
        secret(Certificate(PAIR.certificate_pem, EXPIRING.key_pem)),
        secret(EXPIRING),
        secret(Certificate(LATER.pem, LATER.key_pem)),
    ],
    ids=["empty", "no base64", "another key", "expiring", "made by a clock ahead"],
)
async def test_a_secret_of_no_use_is_filled_anew(tmp_path: Path, bad: dict[str, Any]) -> None:
    async with (
        api_server({SECRET: bad}) as (server, kube),
        publisher(kube) as ours,
        running(SelfSigned(kube, ours, "kube-system", tmp_path / "pair.pem").run()),
    ):
        await until(lambda: server.writes.count(SECRET) == 1 and (tmp_path / "pair.pem").exists())
        assert authority.ends(held(server).certificate_pem) > authority.ends(EXPIRING.certificate_pem)


async def test_both_cas_are_trusted_while_the_certificate_is_exchanged(tmp_path: Path) -> None:
    file = tmp_path / "pair.pem"
    steps: list[tuple[bool, str]] = []
    async with (
        api_server({**CALLERS, SECRET: secret(PAIR)}) as (server, kube),
        publisher(kube) as ours,
        running(SelfSigned(kube, ours, "kube-system", file).run()),
    ):
        await until(lambda: everywhere(server, PAIR.certificate_pem))
        server.drop(SECRET)

        def exchanged() -> bool:
            bundle = server.objects[CONFIG_MAP]["data"]["ca.crt"]
            state = (PAIR.key_pem in file.read_text(), bundle)
            if state not in steps:
                steps.append(state)
            return SECRET in server.objects and everywhere(server, held(server).certificate_pem)

        await until(exchanged)
        new = held(server)
    old, both = PAIR.certificate_pem, new.certificate_pem + PAIR.certificate_pem
    assert steps[0] == (True, old)
    assert steps[-1] == (False, new.certificate_pem)
    assert all(bundle == both for old_served, bundle in steps[1:-1])
    assert (True, new.certificate_pem) not in steps
    assert (False, old) not in steps


async def test_a_ca_that_cannot_be_published_does_not_hold_the_certificate_back_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "SETTLE_SECONDS", 0.1)
    file, other = tmp_path / "pair.pem", authority.make(("antrea",), ())
    async with (
        api_server({**CALLERS, SECRET: secret(PAIR)}) as (server, kube),
        publisher(kube) as ours,
        running(SelfSigned(kube, ours, "kube-system", file).run()),
    ):
        await until(lambda: everywhere(server, PAIR.certificate_pem))
        server.refuse = "RBAC says no"
        server.put(SECRET, secret(other))
        await until(lambda: other.key_pem in file.read_text())
        assert everywhere(server, PAIR.certificate_pem)


async def test_of_two_replicas_one_makes_the_pair_and_both_serve_it(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.pem", "two.pem")]
    async with (
        api_server({}) as (server, kube),
        publisher(kube) as ours,
        running(*(SelfSigned(kube, ours, "kube-system", file).run() for file in files)),
    ):
        await until(lambda: all(file.exists() for file in files))
        await until(lambda: len({file.read_text() for file in files}) == 1)
        assert files[0].read_text().startswith(held(server).certificate_pem)


class Turn:
    """A replica's part in an election that tests hold."""

    def __init__(self, *, leads: bool) -> None:
        self.now = leads
        self.lead = Leadership(lambda: self.now)
        self.lead.elected = True

    def becomes(self, *, leads: bool) -> None:
        self.now = leads
        self.lead.changed()


async def test_a_replica_that_does_not_lead_makes_nothing_until_it_leads(tmp_path: Path) -> None:
    turn, file = Turn(leads=False), tmp_path / "pair.pem"
    async with api_server(CALLERS) as (server, kube):
        ours = CaPublisher(kube, "kube-system", turn.lead)
        async with running(ours.run(), SelfSigned(kube, ours, "kube-system", file).run()):
            ours.trust("PEM of before")
            await until(lambda: len(ours._seen) == len(KINDS) + 1)
            await asyncio.sleep(0.05)
            assert (server.writes, file.exists()) == ([], False)
            turn.becomes(leads=True)
            await until(lambda: SECRET in server.objects and everywhere(server, held(server).certificate_pem))
            await until(file.exists)


async def test_a_replica_that_does_not_lead_serves_a_new_certificate_once_its_ca_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "OTHERS_SECONDS", 0.05)
    file, turn = tmp_path / "pair.pem", Turn(leads=False)
    world = {**CALLERS, SECRET: secret(PAIR)}
    async with api_server(world) as (server, kube), publisher(kube) as leader:
        leader.trust(PAIR.certificate_pem)
        await asyncio.wait_for(leader.settled(), 30)
        ours = CaPublisher(kube, "kube-system", turn.lead)
        async with running(ours.run(), SelfSigned(kube, ours, "kube-system", file).run()):
            await until(lambda: file.exists() and PAIR.key_pem in file.read_text())
            other = authority.make(("antrea",), ())
            server.put(SECRET, secret(other))
            await asyncio.sleep(0.1)
            assert PAIR.key_pem in file.read_text()
            # what else the leader publishes does not matter
            leader.trust(other.certificate_pem)
            await until(lambda: other.key_pem in file.read_text())
            assert everywhere(server, other.certificate_pem)


def provide(directory: Path, ca: str) -> None:
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (directory / name).write_text(ca)


async def test_a_users_ca_is_published_and_followed(tmp_path: Path) -> None:
    async with (
        api_server(CALLERS) as (server, kube),
        publisher(kube) as ours,
        running(Provided(ours, tmp_path).run()),
    ):
        provide(tmp_path, "USER 1")
        await until(lambda: everywhere(server, "USER 1"))
        provide(tmp_path, "USER 2")
        await until(lambda: everywhere(server, "USER 2"))


async def test_a_users_files_that_do_not_come_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "PROVIDED_SECONDS", 0.0)
    (tmp_path / "tls.crt").write_text("x")
    async with api_server({}) as (_, kube):
        with pytest.raises(Invalid, match=r"selfSignedCert: is false, but .* lacks ca\.crt, tls\.key"):
            await Provided(CaPublisher(kube, "kube-system"), tmp_path).run()


async def test_default_tiers_are_made_and_their_priorities_put_right() -> None:
    collection = "/apis/crd.antrea.io/v1beta1/tiers"
    wrong = {"spec": {"priority": 7, "description": "mine"}}
    async with api_server({f"{collection}/platform": wrong, f"{collection}/gold": wrong}) as (server, kube):
        server.refuse = "no endpoints available for service antrea"
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                server.refuse = ""

        await create_default_tiers(kube, sleep=sleep)
        specs = {path: one["spec"] for path, one in server.objects.items()}
    wanted = {
        f"{collection}/{tier.metadata.name}": {
            "priority": tier.spec.priority,
            "description": tier.spec.description,
        }
        for tier in DEFAULT_TIERS
    }
    wanted[f"{collection}/platform"] = {"priority": 200, "description": "mine"}
    assert (specs, pauses) == ({**wanted, f"{collection}/gold": wrong["spec"]}, [1, 2, 4, 8, 8])


@pytest.mark.parametrize(
    ("status", "tries", "wanted"),
    [
        (500, 10, ["INFO Default Tiers will be created once kube-apiserver can call the webhook"]),
        (
            500,
            12,
            [
                "INFO Default Tiers will be created once kube-apiserver can call the webhook",
                *["WARNING Failed to create a default Tier"] * 2,
            ],
        ),
        (403, 2, ["WARNING Failed to create a default Tier"] * 2),
    ],
    ids=["a minute of a webhook that cannot be called", "more than that", "a refusal"],
)
async def test_default_tiers_that_have_to_wait_are_one_line_unless_something_is_wrong(
    status: int, tries: int, wanted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with api_server({}) as (server, kube):
        server.refuse, server.refuse_status = "no endpoints available for service antrea", status
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == tries:
                server.refuse = ""

        await create_default_tiers(kube, sleep=sleep)
    told = [f"{one.levelname} {one.message}" for one in caplog.records if one.name == policy_part.__name__]
    assert told == [*wanted, *["INFO Created default Tier"] * len(DEFAULT_TIERS)]

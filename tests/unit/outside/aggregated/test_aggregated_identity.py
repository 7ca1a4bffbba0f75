"""Who a certificate or a token is, and who may do what, each asked once in a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from certificates import SERVER, made

from antrea.errors import Refused, Unavailable
from antrea.outside.apiserver.attributes import attributes
from antrea.outside.apiserver.authentication import ANONYMOUS, Trust, User
from antrea.outside.apiserver.authorization import Authorization, SubjectAccessReview
from antrea.outside.apiserver.client_certificate import Subject, issued_by
from antrea.outside.apiserver.expiring import Expiring
from antrea.outside.apiserver.status import ApiError

FRONT = made("front-proxy-ca", ca=True)
CLIENTS = made("kubernetes", ca=True)


def test_identity_a_certificate_counts_against_its_own_ca_alone() -> None:
    proxy = made("front-proxy-client", FRONT)
    impostor = made("front-proxy-client", CLIENTS)
    until = proxy.certificate.not_valid_after_utc.timestamp()
    assert issued_by(FRONT.pem, proxy.der, ()) == Subject("front-proxy-client", (), until)
    assert issued_by(FRONT.pem, impostor.der, ()) is None
    # not even with the right CA among what it sends
    assert issued_by(FRONT.pem, impostor.der, (FRONT.der, CLIENTS.der)) is None
    # a CA of the same name with another key is another CA
    assert issued_by(made("front-proxy-ca", ca=True).pem, proxy.der, ()) is None
    assert issued_by("", proxy.der, ()) is None


def test_identity_organisations_are_groups() -> None:
    found = issued_by(CLIENTS.pem, made("jane", CLIENTS, groups=("dev", "ops")).der, ())
    assert found is not None
    assert (found.name, found.groups) == ("jane", ("dev", "ops"))


def test_identity_expired_foreign_server_and_broken_certificates_are_nobody() -> None:
    for der in (
        made("jane", CLIENTS, days=-1).der,
        made("jane").der,
        made("jane", CLIENTS, usage=SERVER).der,
        b"no certificate",
    ):
        assert issued_by(CLIENTS.pem, der, ()) is None
    assert issued_by(made("old", ca=True, days=-1).pem, made("jane", made("old", ca=True)).der, ()) is None
    assert issued_by("no PEM", made("jane", CLIENTS).der, ()) is None


def test_identity_a_chain_leads_over_cas_only() -> None:
    between = made("intermediate", CLIENTS, ca=True)
    jane = made("jane", between)
    assert issued_by(CLIENTS.pem, jane.der, ()) is None
    assert issued_by(CLIENTS.pem, jane.der, (between.der,)) is not None
    leaf = made("leaf", CLIENTS)
    assert issued_by(CLIENTS.pem, made("jane", leaf).der, (leaf.der,)) is None


def test_identity_trust_is_read_from_the_config_map() -> None:
    data = {
        "client-ca-file": "A",
        "requestheader-client-ca-file": "B",
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": "nonsense",
    }
    assert Trust.of(data, "C") == Trust(
        client_ca="A\nC", front_ca="B", front_names=("front-proxy-client",), user_headers=("X-Remote-User",)
    )
    assert Trust.of({}) == Trust()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_identity_answers_are_asked_once_kept_for_a_while_and_bounded() -> None:
    clock, asked = Clock(), []
    known: Expiring[str] = Expiring(10, 2, clock)

    async def ask(what: str) -> str:
        asked.append(what)
        await asyncio.sleep(0)
        return what.upper()

    assert await asyncio.gather(*(known.get("a", lambda: ask("a")) for _ in range(5))) == ["A"] * 5
    assert await known.get("a", lambda: ask("a")) == "A"
    assert asked == ["a"]
    clock.now = 11
    assert await known.get("a", lambda: ask("a")) == "A"
    assert asked == ["a", "a"]
    for key in ("b", "c"):
        await known.get(key, lambda key=key: ask(key))  # type: ignore[misc]
    assert len(known) == 2

    async def fails() -> str:
        raise Unavailable("nobody there")

    for _ in range(2):
        with pytest.raises(Unavailable):
            await known.get("d", fails)


class Reviews:
    """An API server that allows what it was told to, and counts."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.questions: list[Any] = []

    async def get(self, path: str, kind: type[Any]) -> None:
        """It publishes no keys."""

    async def ask(self, path: str, question: Any, kind: type[Any]) -> Any:
        import msgspec

        self.questions.append((path, question["spec"]))
        if isinstance(self.answer, Exception):
            raise self.answer
        return msgspec.convert({"status": self.answer}, kind)


JANE = User("jane", ("dev",))
LIST = attributes("GET", "/apis/controlplane.antrea.io/v1beta2/networkpolicies", {})


async def test_identity_the_api_server_decides_who_may_and_is_asked_once() -> None:
    kube = Reviews({"allowed": True})
    authorization = Authorization(["/healthz"], kube)
    for _ in range(3):
        await authorization.check(JANE, LIST)
    assert kube.questions == [
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "user": "jane",
                "groups": ("dev",),
                "uid": "",
                "extra": {},
                "resourceAttributes": {
                    "verb": "list",
                    "group": "controlplane.antrea.io",
                    "version": "v1beta2",
                    "namespace": "",
                    "resource": "networkpolicies",
                    "subresource": "",
                    "name": "",
                },
            },
        )
    ]
    await authorization.check(User("jane"), LIST)
    await authorization.check(JANE, attributes("GET", "/version", {}))
    assert [spec.get("nonResourceAttributes") for _, spec in kube.questions[1:]] == [
        None,
        {"verb": "get", "path": "/version"},
    ]


async def test_identity_open_paths_and_masters_need_no_question() -> None:
    authorization = Authorization(["/healthz", "/validate/tier"], None)
    await authorization.check(ANONYMOUS, attributes("GET", "/healthz", {}))
    await authorization.check(ANONYMOUS, attributes("POST", "/validate/tier", {}))
    await authorization.check(User("root", ("system:masters",)), LIST)
    with pytest.raises(ApiError, match=r'User "system:anonymous" cannot get path "/healthz/x"'):
        await authorization.check(ANONYMOUS, attributes("GET", "/healthz/x", {}))


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (
            {"allowed": False, "reason": "no"},
            403,
            (
                'networkpolicies.controlplane.antrea.io is forbidden: User "jane" cannot list resource "networkpolicies"'
                ' in API group "controlplane.antrea.io" at the cluster scope: no'
            ),
        ),
        (Refused(["x"], "forbidden"), 403, "is forbidden"),
        (Unavailable("away"), 503, "it cannot be asked now who may do this: away"),
    ],
)
async def test_identity_a_no_is_in_kubernetes_words_and_no_answer_is_no_right(
    answer: dict[str, Any] | Exception, code: int, words: str
) -> None:
    with pytest.raises(ApiError) as no:
        await Authorization([], Reviews(answer)).check(JANE, LIST)
    assert no.value.status.code == code
    assert words in no.value.status.message


def test_identity_a_review_without_a_status_is_a_no() -> None:
    assert SubjectAccessReview().status.allowed is False

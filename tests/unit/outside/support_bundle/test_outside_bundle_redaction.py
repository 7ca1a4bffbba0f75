"""What a support bundle keeps to itself."""

from __future__ import annotations

import time

import pytest

from antrea.outside.support_bundle.redaction import GONE, Redaction, is_secret, of_environment, tree

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl"


def redacted(text: str, *known: str) -> str:
    return "\n".join(Redaction(known).lines(text.split("\n")))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("password: hunter2", f"password: {GONE}"),
        ("password: correct horse battery", f"password: {GONE}"),
        ('  "apiKey": "hunter2",', f'  "apiKey": {GONE},'),
        ('{"user":"anna","password":"hun\\"ter2","port":5}', f'{{"user":"anna","password":"{GONE}","port":5}}'),
        ('I1 x.go:1] "Login" user="anna" password="hunter2" port=5', f'I1 x.go:1] "Login" user="anna" password="{GONE}" port=5'),
        ("connect password=hunter2, retry=1", f"connect password={GONE}, retry=1"),
        ("sync --password hunter2 --port 5", f"sync --password {GONE} --port 5"),
        ("sync --token=hunter2 --port=5", f"sync --token={GONE} --port=5"),
        ("DB_PASSWORD=hunter2", f"DB_PASSWORD={GONE}"),
        ("Authorization: Bearer abcdefgh1234", f"Authorization: Bearer {GONE}"),
        ("authorization: Basic YW5uYTpodW50ZXIy", f"authorization: Basic {GONE}"),
        (f"got {JWT} from it", f"got {GONE} from it"),
        ("dial https://anna:hunter2@host:8443/x", f"dial https://{GONE}@host:8443/x"),
        ("options: {psk=hunter2, remote_ip=10.0.0.1}", f"options: {{psk={GONE}, remote_ip=10.0.0.1}}"),
        ('options: {psk="hunter2", remote_ip="10.0.0.1"}', f'options: {{psk="{GONE}", remote_ip="10.0.0.1"}}'),
        ("client-key-data: LS0tLS1CRUdJTiBFQw==", f"client-key-data: {GONE}"),
        ('msg="{\\"token\\":\\"hunter2\\",\\"a\\":1}"', f'msg="{{\\"token\\":\\"{GONE}\\",\\"a\\":1}}"'),
        ("- name: DB_PASSWORD\n  value: hunter2", f"- name: DB_PASSWORD\n  value: {GONE}"),
        ("password: |\n  hunter2\n  more\nport: 5", f"password: |\n  {GONE}\n  {GONE}\nport: 5"),
        ("tokens:\n- hunter2\n- other1\nport: 5", f"tokens:\n- {GONE}\n- {GONE}\nport: 5"),
        ('"tokens": [\n  "hunter2",\n  "b"\n],\n"a": 1', f'"tokens": [\n  {GONE},\n  {GONE}\n],\n"a": 1'),
        ("secret:\n  defaultMode: 420\n  secretName: tls", "secret:\n  defaultMode: 420\n  secretName: tls"),
    ],
)  # fmt: skip
def test_redaction_takes_out_what_is_named_as_a_secret(text: str, kept: str) -> None:
    assert redacted(text) == kept
    assert "hunter2" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "tokenFile: /var/run/antrea/token",
        "secretName: antrea-controller-tls",
        "I1 auth.go:2] Created TokenReview",
        "cookie=0x1, table=7, priority=200,ip,nw_dst=10.1.0.5 actions=resubmit(,8)",
        "10.1.0.0/24 dev antrea-gw0 proto kernel scope link",
        "set_tunnel:0x1,load:0x1->NXM_NX_REG0[]",
        "tcp dport 443 accept comment \"passes\"",
        "https://[fd00::1]:6443/api",
    ],
)  # fmt: skip
def test_redaction_leaves_the_rest_as_it_is(text: str) -> None:
    assert redacted(text) == text


def test_redaction_takes_out_private_keys_whole_and_leaves_certificates() -> None:
    key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nabc=\n-----END EC PRIVATE KEY-----"
    certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    assert redacted(f"before\n  {key}\n{certificate}") == f"before\n  {GONE}\n{certificate}"
    inline = key.replace("\n", "\\n")
    assert redacted(f'{{"pem": "{inline}", "a": 1}}') == f'{{"pem": "{GONE}", "a": 1}}'


def test_redaction_finds_known_secrets_anywhere_also_in_base64() -> None:
    text = "x: xyzzy-plugh and eHl6enktcGx1Z2g="
    assert redacted(text, "xyzzy-plugh", "x") == f"x: {GONE} and {GONE}"
    assert of_environment({"DB_PASSWORD": "a", "TOKEN_FILE": "/b", "HOME": "/"}) == ["a"]
    assert [is_secret(n) for n in ("password", "passwordFile", "IPSEC_PSK", "Table")] == [
        True,
        False,
        True,
        False,
    ]


def test_redaction_of_an_object_knows_variables_arguments_and_copies() -> None:
    pod = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "token=hunter2"}},
        "spec": {
            "containers": [{
                "args": ["--password", "hunter2", "--port", "5", "--api-key=hunter2"],
                "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "A", "value": "b"}],
            }],
            "volumes": [{"name": "tls", "secret": {"secretName": "antrea-controller-tls", "defaultMode": 420}}],
        },
    }  # fmt: skip
    assert tree(pod) == {
        "metadata": {"annotations": {"note": f"token={GONE}"}},
        "spec": {
            "containers": [{
                "args": ["--password", GONE, "--port", "5", f"--api-key={GONE}"],
                "env": [{"name": "DB_PASSWORD", "value": GONE}, {"name": "A", "value": "b"}],
            }],
            "volumes": [{"name": "tls", "secret": {"secretName": "antrea-controller-tls", "defaultMode": 420}}],
        },
    }  # fmt: skip


def test_redaction_of_a_hostile_line_takes_time_in_proportion_to_its_length() -> None:
    redaction = Redaction()
    for line in ("a-" * 100_000 + "token" * 10, "--token" * 20_000, '\\"token' * 20_000, "password" * 20_000):
        began = time.process_time()
        redaction.line(line)
        assert time.process_time() - began < 2

"""What the agent does before it has imported all that it runs."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import gc, json, os, sys
done, roots = [], os.environ.get("SSL_CERT_FILE")
IMPORTS = {"antrea.agent.program": "agent is being imported", "antrea.agent.assembly": "agent is imported"}

def audit(event, words):
    if event == "subprocess.Popen":
        done.append("certificate is being made" if words[1][3].endswith("self_signed_program") else words[1])
    elif event == "import" and words[0] in IMPORTS:
        done.append(IMPORTS[words[0]])

def collecting(phase, _):
    if phase == "start":
        done.append("garbage collection")

sys.addaudithook(audit)
from antrea.agent.main import main
gc.callbacks.append(collecting)
try:
    main(["--config", "/nowhere/antrea-agent.conf"])
except SystemExit as end:
    gc.callbacks.clear()
    from aiohttp import connector
    read = [context.cert_store_stats()["x509"] for context in vars(connector).values() if isinstance(context, connector.SSLContext)]
    left = os.environ.get("SSL_CERT_FILE") == roots
    print(json.dumps([done, gc.isenabled(), gc.get_freeze_count() > 10_000, end.code, read, left]))
"""


def started() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)


def test_the_certificate_is_made_while_the_agent_is_imported() -> None:
    done, _, _, code, *_ = json.loads(started().stdout)
    begun = [one for one in done if one != "garbage collection"]
    told = ["certificate is being made", "agent is being imported", "agent is imported"]
    assert (begun, code) == (told, 1)


def test_the_agent_is_imported_without_garbage_collections() -> None:
    done, enabled, frozen, *_ = json.loads(started().stdout)
    meanwhile = done[done.index("agent is being imported") : done.index("agent is imported")]
    assert (enabled, frozen) == (True, True)
    # the start of the certificate's process comes before, and reading the configuration after
    assert "garbage collection" not in meanwhile
    assert done.count("garbage collection") < 10


def test_the_systems_root_certificates_are_not_read_for_contexts_that_nothing_uses() -> None:
    *_, read, left = json.loads(started().stdout)
    assert (read, left) == ([0, 0], True)


def test_a_configuration_that_is_not_there_is_said_on_stderr() -> None:
    assert "antrea-agent: " in started().stderr

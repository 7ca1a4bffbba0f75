"""`antctl upgrade api-storage`: every stored object is written again, in the version that its CRD stores today.

parity: pkg/antctl/raw/upgrade/apistorage/command.go. Afterwards a release may stop serving the old version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, Group
from antrea.antctl.output import echo
from antrea.antctl.request import ErrorResponse, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.antctl.request import Server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PAGE = 500
TRIES = 5
"""How often a write is tried that meets a conflict; client-go's DefaultRetry."""
CHANGED = """The CRD "{}" unexpectedly changed during the upgrade. This means that either an object was persisted in a
non-storage version, or the storage version was changed by someone else during the upgrade process.
Please ensure that no changes to the CRDs are made during the upgrade process and re-run the command
until you no longer see this message."""
EXAMPLES = """
  Perform a dry-run to upgrade all existing objects of Antrea CRDs to the storage API version
  $ antctl upgrade api-storage --dry-run

  Upgrade all existing objects of Antrea CRDs to the storage version
  $ antctl upgrade api-storage

  Upgrade existing AntreaAgentInfo objects to the storage version
  $ antctl upgrade api-storage --crds=antreaagentinfos.crd.antrea.io

  Upgrade existing Egress and Group objects to the storage version
  $ antctl upgrade api-storage --crds=egresses.crd.antrea.io,groups.crd.antrea.io
"""


def command() -> click.Command:
    """The group `upgrade` with its one command."""
    text = "Upgrade existing objects of Antrea CRDs to the storage version"
    storage = click.Command(
        "api-storage",
        context_settings=HELP,
        params=[
            click.Option(["--crds"], multiple=True, help="Specify some Antrea CRDs to upgrade"),
            click.Option(["--dry-run"], is_flag=True, help="Only print objects that would be upgraded"),
        ],
        callback=_callback,
        short_help=text,
        help=f"{text}\n\n\b\nExamples:{EXAMPLES.replace(chr(10) * 2, chr(10) * 2 + chr(8) + chr(10))}",
    )
    short = "Sub-commands for upgrade operations"
    return Group("upgrade", [storage], context_settings=HELP, help=short)


def _callback(crds: tuple[str, ...], dry_run: bool) -> None:
    server = click.get_current_context().obj.find()
    upgrade(server, {name.strip() for given in crds for name in given.split(",")}, dry_run=dry_run)


def upgrade(server: Server, names: set[str], *, dry_run: bool) -> None:
    """Upgrade the CRDs `names`, all of Antrea's if empty; progress goes to stderr. Raises Failure."""
    listed = {crd["metadata"]["name"]: crd for crd in ask(server, CRDS, {})["items"]}
    ours = {name for name in listed if name.endswith("crd.antrea.io")}
    for name in sorted(names - ours):
        _report(f'Skip CRD "{name}" which is not created by Antrea.')
    for name in sorted(ours & names if names else ours):
        crd = listed[name]
        if why := _up_to_date(crd):
            _report(f'Skip upgrading CRD "{name}" since {why}.')
            continue
        query = {"dryRun": "All"} if dry_run else {}
        _upgrade_objects(server, crd, query)
        _trim(server, crd, query)


def storage_version(crd: dict[str, Any]) -> str:
    """The version that the API server stores objects in."""
    return next(str(version["name"]) for version in crd["spec"]["versions"] if version["storage"])


def _up_to_date(crd: dict[str, Any]) -> str:
    """Why there is nothing to do; empty if there is."""
    if len(crd["spec"]["versions"]) == 1:
        return "it only has one version"
    if crd["status"].get("storedVersions") == [storage_version(crd)]:
        return "all stored objects are in the storage version"
    return ""


def _upgrade_objects(server: Server, crd: dict[str, Any], query: dict[str, str]) -> None:
    name, spec = crd["metadata"]["name"], crd["spec"]
    prefix = f"/apis/{spec['group']}/{storage_version(crd)}"
    items = list(_objects(server, f"{prefix}/{spec['names']['plural']}"))
    if not items:
        return
    _report(f'Upgrading {len(items)} objects of CRD "{name}".')
    for item in items:
        namespace, item_name = item["metadata"].get("namespace", ""), item["metadata"]["name"]
        called = f"{namespace}/{item_name}" if namespace else item_name
        scope = f"/namespaces/{namespace}" if namespace else ""
        path = f"{prefix}{scope}/{spec['names']['plural']}/{item_name}"
        try:
            _write(server, path, item, query, f'object {called} of CRD "{name}"')
        except ErrorResponse as error:
            if error.status != 404:
                raise Failure(
                    f'error upgrading object {called} of CRD "{name}": {error.format_message()}'
                ) from error
            _report(f'Skip upgrading object {called} of CRD "{name}" which is not found.')
    _report(f'Successfully upgraded {len(items)} objects of CRD "{name}".')


def _objects(server: Server, path: str) -> Iterator[dict[str, Any]]:
    token = ""
    while True:
        page = ask(server, path, {"limit": str(PAGE)} | ({"continue": token} if token else {}))
        yield from page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return


def _write(server: Server, path: str, item: dict[str, Any], query: dict[str, str], called: str) -> None:
    for left in reversed(range(TRIES)):
        try:
            ask(server, path, query, item, method="PUT")
            return
        except ErrorResponse as error:
            if error.status != 409 or not left:
                raise
            _report(f"Got conflict error when upgrading {called}, retry upgrading.")
            item = ask(server, path, {})


def _trim(server: Server, crd: dict[str, Any], query: dict[str, str]) -> None:
    """The API server forgets the versions in which nothing is stored any more."""
    name = crd["metadata"]["name"]
    body = {**crd, "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    body["status"] = {**crd["status"], "storedVersions": [storage_version(crd)]}
    try:
        ask(server, f"{CRDS}/{name}/status", query, body, method="PUT")
    except ErrorResponse as error:
        if error.status == 409:
            raise Failure(CHANGED.format(name)) from error
        raise Failure(
            f'error updating CRD "{name}" status.storedVersion: {error.format_message()}'
        ) from error


def _report(line: str) -> None:
    echo(line, err=True)

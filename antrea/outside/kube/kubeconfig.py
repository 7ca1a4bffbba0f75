"""Reads kubeconfig files as client-go does: several are merged; a field that is not supported is refused by its name.

Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/,
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from antrea.config.load import read
from antrea.config.yaml_reader import own_document
from antrea.decoding import decode_base64, decode_tree, guarded
from antrea.errors import Invalid
from antrea.outside.kube.access import Access, api_server_url
from antrea.outside.kube.exec_credential import Credential, credential
from antrea.outside.kube.override import Override
from antrea.outside.tls.pem import decode_pem

if TYPE_CHECKING:
    from collections.abc import Sequence

S = TypeVar("S", bound=msgspec.Struct)
NO_OVERRIDE: Final = Override()

KINDS: Final = {"contexts": "context", "clusters": "cluster", "users": "user"}
HEADER_NAME_MARKS: Final = "!#$&'*+-.^_`|~"
"""Characters that the name of a header may have besides letters and digits, without the percent sign that escapes all else."""


class _Section(msgspec.Struct, frozen=True, rename="kebab"):
    extensions: Any = None
    """For other programs."""


class _Context(_Section, frozen=True, rename="kebab"):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Cluster(_Section, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""
    disable_compression: bool = False


class _User(_Section, frozen=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    exec: dict[str, Any] | None = None


class _Entry(NamedTuple):
    """A section, and the file that it is from: paths in it are relative to that."""

    section: dict[str, Any]
    file: Path


class Kubeconfig(NamedTuple):
    """Files merged: of each name the first section counts, and the first current-context that is set."""

    files: tuple[Path, ...]
    current: str
    entries: dict[str, dict[str, _Entry]]

    @classmethod
    def of(cls, files: Sequence[Path]) -> Kubeconfig:
        """Raises Invalid."""
        current, entries = "", {plural: dict[str, _Entry]() for plural in KINDS}
        for file in files:
            tree = _tree(file)
            named = tree.get("current-context") or ""
            current = current or str(named)
            for plural in KINDS:
                entries[plural] = {**_entries(tree, plural, file), **entries[plural]}
        return cls(tuple(files), current, entries)

    def __str__(self) -> str:
        return ":".join(map(str, self.files))

    def entry(self, plural: str, name: str) -> _Entry:
        """The section with this name. Raises Invalid."""
        if entry := self.entries[plural].get(name):
            return entry
        raise Invalid(f"{self}: {plural}", f"has no {KINDS[plural]} named {name!r}")

    def context(self, override: Override = NO_OVERRIDE) -> _Context:
        """The current context, or the one that is chosen, with the cluster and the user that are chosen. Raises Invalid."""
        name = override.context or self.current
        # with the address of a server kubectl needs no context, and with a cluster neither
        needs_none = not name and (override.server or override.cluster)
        context = _Context() if needs_none else _read(_Context, "contexts", self.entry("contexts", name))
        return msgspec.structs.replace(
            context, cluster=override.cluster or context.cluster, user=override.user or context.user
        )


def kubeconfig(
    path: Path | str, *more: Path, override: Override = NO_OVERRIDE, plugins: bool = False
) -> Access:
    """The current context of a kubeconfig file, or of several merged, with what `override` replaces. Raises Invalid.

    With `plugins`, an exec plugin is run, once: what it gives does not last, which is right for a command that ends.
    """
    return access_of(Kubeconfig.of([Path(path), *more]), override, plugins=plugins)


def access_of(config: Kubeconfig, override: Override, *, plugins: bool) -> Access:
    """The server and the identity that a kubeconfig and options name. Raises Invalid."""
    context = config.context(override)
    is_bare = not context.cluster and bool(override.server)
    at = _Entry({}, Path()) if is_bare else config.entry("clusters", context.cluster)
    who = config.entry("users", context.user) if context.user else _Entry({}, at.file)
    cluster, user = _read(_Cluster, "clusters", at), _read(_User, "users", who)
    cluster_field, user_field = f"{at.file}: clusters[].cluster", f"{who.file}: users[].user"
    given = Credential()
    if user.exec and not override.token:
        if not plugins:
            raise Invalid(f"{user_field}.exec", "is not supported here; use a token or a client certificate")
        given = credential(user.exec, at.section, at.file.parent, who.file, f"{user_field}.exec")
    access = Access(
        url=_server(override.server, cluster.server, f"{cluster_field}.server"),
        ca_pem=_pem(at, "certificate-authority"),
        token=user.token or given.token,
        token_file=str(who.file.parent / user.token_file) if user.token_file else "",
        certificate_pem=_pem(who, "client-certificate") or given.client_certificate_data,
        key_pem=_pem(who, "client-key") or given.client_key_data,
        server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        impersonate=_impersonate(user, user_field),
        proxy_url=cluster.proxy_url,
        disable_compression=cluster.disable_compression,
    )
    if override.insecure:
        access = msgspec.structs.replace(access, insecure=True, ca_pem="")
    if access.insecure and access.ca_pem:
        raise Invalid(
            f"{cluster_field}.insecure-skip-tls-verify", "is set together with a certificate authority"
        )
    if bool(access.certificate_pem) != bool(access.key_pem):
        raise Invalid(user_field, "client-certificate and client-key are needed together")
    try:
        access.proxy()
    except Invalid as error:
        raise Invalid(f"{cluster_field}.{error.path}", error.why) from error
    return override.apply(access)


def cluster_name(files: Sequence[Path], override: Override = NO_OVERRIDE) -> str:
    """Return the cluster's name in the current context of the kubeconfig, or that of `override`. Raises Invalid."""
    return Kubeconfig.of(files).context(override).cluster


def _tree(file: Path) -> dict[str, Any]:
    """Raises Invalid."""
    text = read(file)
    try:
        tree = guarded(str(file), own_document, text)
    except Invalid as error:
        raise Invalid(str(file), f"not YAML: {error.why}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise Invalid(str(file), "is not a kubeconfig: a mapping is expected")
    return tree


def _entries(tree: dict[str, Any], plural: str, file: Path) -> dict[str, _Entry]:
    """The sections of one kind, by name. Raises Invalid for a name that is there twice."""
    entries: dict[str, _Entry] = {}
    rows = tree.get(plural) or []
    for row in rows if isinstance(rows, list) else []:
        section = row.get(KINDS[plural]) if isinstance(row, dict) else None
        if not isinstance(section, dict):
            continue
        name = str(row.get("name", ""))
        if name in entries:
            raise Invalid(f"{file}: {plural}", f"has two entries named {name!r}")
        entries[name] = _Entry({str(key): value for key, value in section.items()}, file)
    return entries


def _read(kind: type[S], plural: str, entry: _Entry) -> S:
    """Raises Invalid for a field that is not supported, and for one of another type."""
    where = f"{entry.file}: {plural}[].{KINDS[plural]}"
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    fields = {key: value for key, value in entry.section.items() if value is not None}
    for key in fields:
        if key not in known:
            raise Invalid(f"{where}.{key}", f"is not supported; supported are {', '.join(sorted(known))}")
    return decode_tree(fields, kind, where)


def _server(override: str, server: str, where: str) -> str:
    """Raises Invalid."""
    if override:
        return api_server_url(override)
    if not server:
        raise Invalid(where, "is missing")
    parts = urlsplit(server)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Invalid(where, f"{server!r} is not a URL")
    return server.rstrip("/")


def _pem(entry: _Entry, key: str) -> str:
    """The PEM in KEY-data (base64), or in the file KEY, relative to the kubeconfig; empty if there is neither."""
    data = entry.section.get(f"{key}-data")
    if data:
        try:
            return decode_pem(decode_base64(data, key))
        except Invalid as error:
            raise Invalid(f"{entry.file}: {key}-data", "is not base64 of PEM") from error
    return read(entry.file.parent / entry.section[key]) if entry.section.get(key) else ""


def _impersonate(user: _User, where: str) -> tuple[tuple[str, str], ...]:
    """The headers that ask to be treated as another user. Raises Invalid."""
    headers = [("Impersonate-User", user.as_), ("Impersonate-Uid", user.as_uid)]
    headers += [("Impersonate-Group", group) for group in user.as_groups]
    for key, values in user.as_user_extra.items():
        name = f"Impersonate-Extra-{quote(key, safe=HEADER_NAME_MARKS)}"
        headers += [(name, value) for value in values]
    given = tuple((name, value) for name, value in headers if value)
    if given and not user.as_:
        raise Invalid(
            f"{where}.as", "is missing: as-uid, as-groups and as-user-extra need the name of a user"
        )
    for name, value in given:
        if not value.isascii() or not value.isprintable():
            raise Invalid(f"{where}.as", f"{name} has a character that is not printable ASCII: {value!r}")
    return given

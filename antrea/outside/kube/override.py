"""Options that take the place of fields of a kubeconfig, with the names and the meaning that kubectl gives them.

Source: https://kubernetes.io/docs/reference/kubectl/kubectl/, client-go tools/clientcmd/overrides.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.outside.kube.access import Access

USER, UID, GROUP = "Impersonate-User", "Impersonate-Uid", "Impersonate-Group"


class Override(NamedTuple):
    """Values of the options; an empty one leaves the field of the kubeconfig."""

    server: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    token: str = ""
    as_user: str = ""
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    insecure: bool = False

    def apply(self, access: Access) -> Access:
        """Return the access with these credentials, this user and this verification. Raises Invalid.

        The kubeconfig, or the ServiceAccount of the Pod, has chosen the server and the rest.
        """
        import msgspec  # noqa: PLC0415 (start-up time of antctl)

        access = msgspec.structs.replace(access, impersonate=tuple(self._headers(access.impersonate)))
        if not any(name == USER for name, _ in access.impersonate) and access.impersonate:
            raise Invalid("--as", "is missing: --as-uid and --as-group need the name of a user")
        if self.token:
            access = msgspec.structs.replace(access, token=self.token, token_file="")
        if self.insecure:
            access = msgspec.structs.replace(access, insecure=True, ca_pem="")
        return access

    def _headers(self, configured: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
        given = [(USER, self.as_user), (UID, self.as_uid), *((GROUP, group) for group in self.as_groups)]
        given = [(name, value) for name, value in given if value]
        for name, value in given:
            if not value.isascii() or not value.isprintable():
                raise Invalid("--as", f"{name} has a character that is not printable ASCII: {value!r}")
        replaced = {name for name, _ in given}
        yield from given
        yield from (header for header in configured if header[0] not in replaced)

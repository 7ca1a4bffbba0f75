"""Parsing and checks of one CNI call: the plugin's line becomes a valid call, or an error with its code."""

from __future__ import annotations

import re

import msgspec

from antrea.apis.cni import API, VERSIONS, Code, Dns, Error, NetworkConfig, Request
from antrea.decoding import decode_json
from antrea.errors import Invalid

LATEST = VERSIONS[-1]

_SINCE = {"ADD": "0.3.0", "DEL": "0.3.0", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
"""First version of the specification that has each command."""
_NEEDS = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
}
_CONTAINER_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_NETWORK_NAME = _CONTAINER_ID
_IF_NAME = re.compile(r"(?!\.{1,2}$)[^\s/:]{1,15}")
_MTU = range(576, 65536)


class Failed(Exception):
    """Error that answers a call, carried up to where the answer is written."""

    def __init__(self, code: Code, msg: str, *, details: str = "", version: str = LATEST) -> None:
        super().__init__(msg)
        self.error = Error(cni_version=version, code=code, msg=msg, details=details)

    def in_version(self, version: str) -> Failed:
        """Return the error in the version of the specification that the runtime uses."""
        return Failed(self.error.code, self.error.msg, details=self.error.details, version=version)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Valid call."""

    command: str
    """ADD, DEL, CHECK, GC or STATUS."""
    version: str
    """Version of the specification that the answer has to follow."""
    container_id: str = ""
    netns: str = ""
    """Path as the runtime sees it; may be empty for DEL."""
    if_name: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    """Empty if the runtime does not pass it."""
    config: NetworkConfig

    @property
    def dns(self) -> Dns:
        return self.config.dns or Dns()

    @property
    def pod(self) -> str:
        """namespace/name; empty if the runtime does not pass it."""
        return f"{self.pod_namespace}/{self.pod_name}" if self.pod_name else ""


def read_call(line: bytes) -> Call:
    """Parse and check a request from the plugin. Raises Failed."""
    try:
        request = decode_json(line, Request, "request")
    except Invalid as error:
        raise Failed(
            Code.DECODING_FAILURE, f"Failed to decode the request of the CNI plugin: {error.why}"
        ) from error
    if request.api != API:
        raise Failed(
            Code.INCOMPATIBLE_API_VERSION,
            f"The CNI plugin on the Node speaks version {request.api} of the antrea-agent API, the agent {API};"
            " install the plugin of the agent's release",
        )
    config = read_config(request.config)
    version = config.cni_version
    try:
        _check_command(request, version)
        _check_config(config)
        args = _read_args(request.args)
        if request.command == "ADD" and not (args.get("K8S_POD_NAME") and args.get("K8S_POD_NAMESPACE")):
            raise Failed(
                Code.INVALID_ENVIRONMENT,
                "CNI_ARGS must have K8S_POD_NAME and K8S_POD_NAMESPACE",
                details=request.args,
            )
    except Failed as error:
        raise error.in_version(version) from error
    return Call(
        command=request.command,
        version=version,
        container_id=request.container_id,
        netns=request.netns,
        if_name=request.if_name,
        pod_namespace=args.get("K8S_POD_NAMESPACE", ""),
        pod_name=args.get("K8S_POD_NAME", ""),
        pod_uid=args.get("K8S_POD_UID", ""),
        config=config,
    )


def read_config(text: str) -> NetworkConfig:
    """Decode stdin of the plugin. Raises Failed: 6 if it is not JSON, 7 if a value has a wrong type, 1 for its version."""
    try:
        config = decode_json(text, NetworkConfig, "network config")
    except Invalid as error:
        if isinstance(error.__cause__, msgspec.ValidationError):
            raise Failed(Code.INVALID_NETWORK_CONFIG, f"Invalid network config: {error.why}") from error
        raise Failed(Code.DECODING_FAILURE, f"Failed to decode network config: {error.why}") from error
    if config.cni_version not in VERSIONS:
        raise Failed(
            Code.INCOMPATIBLE_CNI_VERSION,
            f"Unsupported CNI version [{config.cni_version}], supported versions {', '.join(VERSIONS)}",
        )
    return config


def _check_command(request: Request, version: str) -> None:
    since = _SINCE.get(request.command)
    if since is None:
        raise Failed(Code.INVALID_ENVIRONMENT, f"Unknown CNI_COMMAND {request.command!r}")
    if VERSIONS.index(version) < VERSIONS.index(since):
        raise Failed(
            Code.INCOMPATIBLE_CNI_VERSION,
            f"CNI version {version} does not have {request.command}, {since} is the first that has",
        )
    given = {
        "CNI_CONTAINERID": request.container_id,
        "CNI_NETNS": request.netns,
        "CNI_IFNAME": request.if_name,
    }
    if missing := [name for name in _NEEDS.get(request.command, ()) if not given[name]]:
        raise Failed(
            Code.INVALID_ENVIRONMENT,
            f"Required environment variables missing for {request.command}: {', '.join(missing)}",
        )
    for name, pattern in (("CNI_CONTAINERID", _CONTAINER_ID), ("CNI_IFNAME", _IF_NAME)):
        if given[name] and not pattern.fullmatch(given[name]):
            raise Failed(Code.INVALID_ENVIRONMENT, f"Invalid {name}", details=repr(given[name]))


def _check_config(config: NetworkConfig) -> None:
    if not _NETWORK_NAME.fullmatch(config.name):
        raise Failed(
            Code.INVALID_NETWORK_CONFIG, f"Invalid network config: name {config.name!r} is not a network name"
        )
    if config.type != "antrea":
        raise Failed(Code.UNSUPPORTED_FIELD, f"Network configuration does not support type={config.type}")
    ipam = config.ipam.type if config.ipam else ""
    if ipam != "host-local":
        raise Failed(Code.UNSUPPORTED_FIELD, f"Network configuration does not support ipam/type={ipam}")
    if config.mtu and config.mtu not in _MTU:
        raise Failed(
            Code.INVALID_NETWORK_CONFIG,
            f"Invalid network config: mtu {config.mtu} is not between {_MTU.start} and {_MTU.stop - 1}",
        )


def _read_args(text: str) -> dict[str, str]:
    """Parse CNI_ARGS: K=V;K=V. Unknown keys are ignored, as they are the runtime's."""
    pairs = [pair.partition("=") for pair in text.split(";") if pair]
    if wrong := [key for key, sep, _ in pairs if not sep]:
        raise Failed(Code.INVALID_ENVIRONMENT, "CNI_ARGS is not KEY=VALUE;KEY=VALUE", details=wrong[0])
    return {key: value for key, _, value in pairs}

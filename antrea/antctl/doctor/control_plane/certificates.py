"""Certificates of the controller and the agents: what is left of their terms, and whether they verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.antctl.doctor.control_plane.cluster_state import AGENT, CERTIFICATE_SECRET, name_of
from antrea.antctl.doctor.control_plane.rollout import node_of
from antrea.antctl.doctor.state import Finding
from antrea.apis.shown import one_line
from antrea.decoding import decode_base64, guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.x509 import Certificate

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

CERTIFICATES: Final = "certificates"
WARNING_DAYS: Final = 14
"""Programs renew their own certificates earlier; those of users are theirs to renew."""
DAY: Final = 86400.0


def certificates(state: ClusterState) -> Iterator[Finding]:
    """Yield certificates that have expired or are about to, that are not valid yet, or that their authority did not issue."""
    yield from _of_controller(state)
    pods = {node_of(pod): name_of(pod) for pod in state.pods_of(AGENT)}
    for info in state.agent_infos or ():
        name = name_of(info)
        if name not in pods or not info.get("apiCABundle"):
            continue
        try:
            pem = decode_base64(info["apiCABundle"], "apiCABundle").decode(errors="replace")
            chain = chain_of(pem, "apiCABundle")
        except Invalid as error:
            yield Finding(
                name, "error", CERTIFICATES, f"AntreaAgentInfo: {error}", f"kubectl get aai {name} -o yaml"
            )
            continue
        if problem := term_problem(state, chain[0]):
            severity, text = problem
            repair = f"kubectl -n {state.namespace} delete pod {pods[name]}"
            yield Finding(name, severity, CERTIFICATES, f"the certificate of the agent's API {text}", repair)


def _of_controller(state: ClusterState) -> Iterator[Finding]:
    """Yield what is wrong with the pair in the Secret, and with the authority in the ConfigMap."""
    chains: dict[str, list[Certificate]] = {}
    for name, pem in (
        (f"Secret {CERTIFICATE_SECRET}", state.certificate),
        ("ConfigMap antrea-ca", state.authority),
    ):
        if not pem:
            continue
        try:
            chains[name] = chain_of(pem, name)
        except Invalid as error:
            yield Finding("", "error", CERTIFICATES, one_line(str(error)), renew(state))
            continue
        if problem := term_problem(state, chains[name][0]):
            severity, text = problem
            yield Finding("", severity, CERTIFICATES, f"the certificate in {name} {text}", renew(state))
    if len(chains) == 2:
        chain, authority = chains.values()
        if not any(_issued(certificate, issuer) for certificate in chain for issuer in authority):
            text = f"the certificate in Secret {CERTIFICATE_SECRET} was not issued by the authority in ConfigMap antrea-ca"
            yield Finding("", "error", CERTIFICATES, text, renew(state))


def renew(state: ClusterState) -> str:
    """Return the command that renews the certificate of the controller: its own, or the user's."""
    lines = (state.config or {}).get("antrea-controller.conf", "").splitlines()
    if any(line.split("#")[0].strip() == "selfSignedCert: false" for line in lines):
        return (
            f"kubectl -n {state.namespace} create secret generic {CERTIFICATE_SECRET} --from-file=ca.crt --from-file=tls.crt "
            "--from-file=tls.key --dry-run=client -o yaml | kubectl apply -f -  # with files of a renewed certificate"
        )
    return f"kubectl -n {state.namespace} delete secret {CERTIFICATE_SECRET}"


def chain_of(pem: str, name: str) -> list[Certificate]:
    """Return the certificates of a PEM file. Raises Invalid."""
    from cryptography import x509  # noqa: PLC0415 (start-up time)

    return guarded(name, x509.load_pem_x509_certificates, pem.encode())


def term_problem(state: ClusterState, certificate: Certificate) -> tuple[str, str] | None:
    """Return severity and words, if the clock of kube-apiserver is outside the term of a certificate, or near its end."""
    now = state.now or 0.0
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if now >= end:
        return "error", f"has expired on {until}"
    if now < begin:
        return "error", f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    if end - now < WARNING_DAYS * DAY:
        return "warning", f"expires in {(end - now) / DAY:.1f} days, on {until}"
    return None


def _issued(certificate: Certificate, issuer: Certificate) -> bool:
    """Return whether `issuer` has signed the certificate, or is the same one."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 (start-up time)

    if certificate == issuer:
        return True
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True

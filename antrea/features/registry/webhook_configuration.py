"""The API server's webhook configurations, made of the rows of webhooks.

Source: upstream build/charts/antrea/templates/webhooks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.features.framework.admission import Webhook

LABELS = {"app": "antrea", "served-by": "antrea-controller"}
"""Labels of the configurations into which the controller puts its CA."""


def configurations(webhooks: Iterable[Webhook], namespace: str) -> list[dict[str, Any]]:
    """Make one object per configuration; failurePolicy is left to its default, Fail."""
    objects: dict[str, dict[str, Any]] = {}
    for webhook in webhooks:
        kind = "MutatingWebhookConfiguration" if webhook.mutate else "ValidatingWebhookConfiguration"
        empty = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": webhook.configuration, "labels": LABELS},
            "webhooks": [],
        }
        objects.setdefault(webhook.configuration, empty)["webhooks"].append(_webhook(webhook, namespace))
    return list(objects.values())


def _webhook(webhook: Webhook, namespace: str) -> dict[str, Any]:
    rule = {
        "operations": list(webhook.operations),
        "apiGroups": [webhook.group],
        "apiVersions": list(webhook.versions),
        "resources": [webhook.resource],
        "scope": webhook.scope,
    }
    service = {"name": "antrea", "namespace": namespace, "path": webhook.path}
    return {
        "name": webhook.name,
        "clientConfig": {"service": service},
        "rules": [rule],
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        **({"failurePolicy": webhook.failure} if webhook.failure else {}),
    }

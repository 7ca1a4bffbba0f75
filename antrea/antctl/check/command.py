"""The group `antctl check` and the options of its two commands."""

from __future__ import annotations

import re
from typing import Any

import click

from antrea.antctl.check import cluster_tests, installation_tests
from antrea.antctl.check.report import Report
from antrea.antctl.check.room import Room, interruptible
from antrea.antctl.check.workload import DEFAULT_IMAGE
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, Group
from antrea.antctl.remote import cluster_name

SHORTEST_DELAY = 1.0


def command() -> click.Command:
    """The group with upstream's commands and options."""
    image: dict[str, Any] = {"default": DEFAULT_IMAGE, "show_default": True}
    cluster = click.Command(
        "cluster",
        context_settings=HELP,
        params=[
            click.Option(["--test-image"], help="Container image override for the cluster checker", **image)
        ],
        callback=_cluster,
        help="Runs pre installation checks",
    )
    installation = click.Command(
        "installation",
        context_settings=HELP,
        params=[
            click.Option(
                ["-n", "--namespace"],
                default="kube-system",
                show_default=True,
                help="Configure Namespace in which Antrea is running",
            ),
            click.Option(["--run"], default="", help="Run only the tests that match the provided regex"),
            click.Option(
                ["--test-image"], help="Container image override for the installation checker", **image
            ),
            click.Option(
                ["--network-policy-delay"],
                default="2s",
                show_default=True,
                help="Maximum time to wait for a policy to be realized / enforced, as a Go duration string",
            ),
        ],
        callback=_installation,
        help="Runs post installation checks",
    )
    return Group(
        "check",
        [cluster, installation],
        context_settings=HELP,
        help="Performs pre and post installation checks",
    )


def _room() -> Room:
    target = click.get_current_context().obj
    return Room(target.find(), Report(cluster_name(target.kubeconfig, target.override)))


def _cluster(test_image: str) -> None:
    with interruptible(), _room() as room:
        cluster_tests.run(room, test_image)


def _installation(namespace: str, run: str, test_image: str, network_policy_delay: str) -> None:
    options = installation_tests.Options(namespace, test_image, _pattern(run), _delay(network_policy_delay))
    with interruptible(), _room() as room:
        installation_tests.run(room, options)


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise Failure(f"invalid regex for run filter: {error}") from error


def _delay(text: str) -> float:
    from antrea.config.shape import seconds  # noqa: PLC0415 (start-up time)

    try:
        delay = seconds(text)
    except ValueError as error:
        raise Failure(f"NetworkPolicy delay is not a valid duration string: {error}") from error
    if delay < SHORTEST_DELAY:
        raise Failure("NetworkPolicy delay should not be less than 1s")
    return delay

"""The group `antctl check` and the options of its two commands."""

from __future__ import annotations

import click

from antrea.antctl.check import cluster_tests, installation_tests
from antrea.antctl.check.internet import DEFAULT_PORT, DEFAULT_TARGET, target_of
from antrea.antctl.check.report import Choice, Report
from antrea.antctl.check.room import Room, interruptible
from antrea.antctl.check.workload import DEFAULT_IMAGE
from antrea.antctl.failure import Failure
from antrea.antctl.group import HELP, Group
from antrea.antctl.remote import cluster_name

SHORTEST_DELAY = 1.0


def command() -> click.Command:
    """The group with upstream's commands and options."""
    cluster = click.Command(
        "cluster",
        context_settings=HELP,
        params=_common_options("cluster"),
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
            *_common_options("installation"),
            click.Option(
                ["--internet-target"],
                default=None,
                metavar="HOST[:PORT]",
                help="Host that Pods have to reach outside of the cluster, by TCP. Without it the test tries "
                f"{DEFAULT_TARGET} port {DEFAULT_PORT}, and is skipped where the Node does not reach it either",
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


def _common_options(name: str) -> list[click.Parameter]:
    return [
        click.Option(["--run"], default="", help="Run only the tests that match the provided regex"),
        click.Option(["--skip"], default="", help="Leave out the tests that match the provided regex"),
        click.Option(
            ["--test-image"],
            default="",
            help=f"Container image override for the {name} checker; without it the image of the agents, "
            f"or {DEFAULT_IMAGE} where none is installed",
        ),
    ]


def _room() -> Room:
    target = click.get_current_context().obj
    return Room(target.find(), Report(cluster_name(target.kubeconfig, target.override)))


def _cluster(run: str, skip: str, test_image: str) -> None:
    choice = Choice.of(run, skip)
    with interruptible(), _room() as room:
        cluster_tests.run(room, test_image, choice)


def _installation(
    namespace: str,
    run: str,
    skip: str,
    test_image: str,
    internet_target: str | None,
    network_policy_delay: str,
) -> None:
    options = installation_tests.Options(
        namespace=namespace,
        image=test_image,
        choice=Choice.of(run, skip),
        policy_seconds=_delay(network_policy_delay),
        internet=None if internet_target is None else target_of(internet_target),
    )
    with interruptible(), _room() as room:
        installation_tests.run(room, options)


def _delay(text: str) -> float:
    from antrea.config.shape import seconds  # noqa: PLC0415 (start-up time)

    try:
        delay = seconds(text)
    except ValueError as error:
        raise Failure(f"NetworkPolicy delay is not a valid duration string: {error}") from error
    if delay < SHORTEST_DELAY:
        raise Failure("NetworkPolicy delay should not be less than 1s")
    return delay

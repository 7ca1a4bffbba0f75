"""Feature gates: every gate of upstream with its stage and default, and whether this program has the feature.

A feature declares its gates in module `gate` of its folder.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence  # noqa: TC003 (msgspec reads annotations)
from itertools import chain

import msgspec

from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.features import FEATURES
from antrea.features.framework.gate_row import AGENT, BOTH, Component, Gate, Stage
from antrea.features.framework.plug import declared

STAGE_SWITCHES: Mapping[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


Gates = str | tuple[str, ...]
"""Gates that turn a feature on: one, any of several, or "" for none at all."""


def is_opened(gates: Gates, on: Container[str]) -> bool:
    """Whether the enabled gates leave a feature on that needs one gate, any of several, or none."""
    return not gates or any(name in on for name in ((gates,) if isinstance(gates, str) else gates))


class EnabledGates(Fact, frozen=True):
    """The gates that are on in this program, after defaults and configuration."""

    component: Component
    names: frozenset[str]
    notes: tuple[str, ...] = ()
    """A sentence for each gate or key that is set and has no such effect."""

    def __contains__(self, name: object) -> bool:
        return name in self.names


class GateStatus(msgspec.Struct, frozen=True):
    """One element of the answer of /featuregates, upstream pkg/apiserver/apis FeatureGateResponse."""

    component: str
    name: str
    status: str
    version: str


# parity: pkg/features/antrea_features.go
OTHER_GATES: tuple[Gate, ...] = (
    Gate("AntreaIPAM", BOTH, "ALPHA", False, "alpha v1.4", "Give Pods addresses from IPPools."),
    Gate("IPsecCertAuth", BOTH, "ALPHA", False, "alpha v1.7", "Authenticate IPsec peers by certificate."),
    Gate("Multicast", BOTH, "BETA", True, "alpha v1.5, beta v1.12", "Forward multicast."),
    Gate("Multicluster", BOTH, "ALPHA", False, "alpha v1.7", "Connect clusters."),
    Gate(
        "NFTablesHostNetworkMode",
        AGENT,
        "ALPHA",
        False,
        "alpha v2.5",
        "Use nftables in the host's network.",
        built=True,
        always="rules in the host's network are always those of nftables",
    ),
    Gate("SecondaryNetwork", AGENT, "ALPHA", False, "alpha v1.5", "Give Pods further interfaces."),
)
"""Gates of upstream that no folder of a feature has: of what is not built, and of what is always on."""
GATES: tuple[Gate, ...] = tuple(
    sorted(
        (*OTHER_GATES, *chain.from_iterable(declared(FEATURES, "gate", Gate, "GATES").values())),
        key=lambda gate: gate.name,
    )
)
"""Gates of all features, by name."""
if twice := sorted(name for name, count in Counter(gate.name for gate in GATES).items() if count > 1):
    raise ValueError(f"feature gate {', '.join(twice)}: declared twice")


def resolve(
    component: Component, configured: Mapping[str, bool], gates: tuple[Gate, ...] = GATES
) -> EnabledGates:
    """Return the gates that are on, for the featureGates of the configuration file.

    Raises Invalid for a name that is not a gate, for a locked gate set against its lock, and for a gate of this component that
    is set to true but not built. Gates of the other component are ignored: upstream's chart writes one map into both files.
    """
    names = [*(gate.name for gate in gates), *STAGE_SWITCHES]
    wrong = {name: _unrecognized(name, names) for name in configured if name not in names}
    if wrong:
        (first, why), *others = wrong.items()
        raise Invalid(
            f"featureGates.{first}",
            "; ".join([why, *(f"featureGates.{name}: {why}" for name, why in others)]),
        )
    on = frozenset(g.name for g in gates if component in g.components and _on(g, configured))
    return EnabledGates(component, on, tuple(_notes(component, configured, on, gates)))


def _unrecognized(name: str, names: Sequence[str]) -> str:
    """Return what is wrong with the name of a gate, and the nearest one that there is."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"unrecognized feature gate{f'; did you mean {near[0]}?' if near else ''}"


def _notes(
    component: Component, configured: Mapping[str, bool], on: frozenset[str], gates: tuple[Gate, ...]
) -> Iterator[str]:
    """Yield a sentence for each setting without effect."""
    known = {gate.name: gate for gate in gates}
    for name, wanted in sorted(configured.items()):
        gate = known.get(name)
        if gate is None or component not in gate.components:
            continue
        if gate.always and not wanted:
            yield f"featureGates.{name}: false has no effect: {gate.always}"
        if (
            wanted
            and gate.needs in known
            and component in known[gate.needs].components
            and gate.needs not in on
        ):
            yield f"featureGates.{name}: true has no effect: it needs featureGates.{gate.needs}, which is off"


def one_sided(here: EnabledGates, there: EnabledGates, gates: tuple[Gate, ...] = GATES) -> Iterator[str]:
    """Yield a sentence for each gate of both programs that is on in only one of them."""
    for gate in sorted(gates, key=lambda gate: gate.name):
        holders = [enabled for enabled in (here, there) if gate.name in enabled]
        if set(gate.components) == {here.component, there.component} and len(holders) == 1:
            on = holders[0].component
            off = there.component if on == here.component else here.component
            yield (
                f"featureGates.{gate.name}: is on in antrea-{on}.conf and off in antrea-{off}.conf;"
                " the feature needs both"
            )


def _on(gate: Gate, configured: Mapping[str, bool]) -> bool:
    wanted = configured.get(gate.name)
    if wanted is not None and gate.locked and wanted != gate.default:
        raise Invalid(f"featureGates.{gate.name}", f"is locked to {str(gate.default).lower()}")
    if gate.always:
        return True
    by_stage = any(configured.get(switch) and gate.stage == stage for switch, stage in STAGE_SWITCHES.items())
    if not gate.built:
        if wanted or (by_stage and wanted is None):
            path = (
                gate.name if wanted else next(s for s, stage in STAGE_SWITCHES.items() if stage == gate.stage)
            )
            raise Invalid(
                f"featureGates.{path}", f"the feature {gate.name} is not built yet, so it cannot be enabled"
            )
        return False
    if wanted is not None:
        return wanted
    switched = next(
        (configured[s] for s, stage in STAGE_SWITCHES.items() if stage == gate.stage and s in configured),
        None,
    )
    return gate.default if switched is None or gate.locked else switched


def statuses(enabled: EnabledGates, gates: tuple[Gate, ...] = GATES) -> list[GateStatus]:
    """Return the answer of /featuregates for one component, sorted by byte order of the name."""
    return [
        GateStatus(
            enabled.component, gate.name, "Enabled" if gate.name in enabled else "Disabled", gate.stage
        )
        for gate in sorted(gates, key=lambda gate: gate.name)
        if enabled.component in gate.components
    ]

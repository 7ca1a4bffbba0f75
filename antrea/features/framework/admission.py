"""Types of admission: a webhook is one row, its decision is a pure generator over facts and the reviewed object.

A validator raises `Invalid` to deny, yields `Warn` for what the user should read, and yields `Find` or `MayGet` for what is in
no fact: the handler looks it up outside and sends the answer back in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from antrea.apis.admission import Operation, UserInfo
from antrea.engine import Facts
from antrea.errors import Invalid
from antrea.facts.fact import Fact, Rows
from antrea.features.framework.gate import GATES, resolve
from antrea.features.framework.label import is_object_name

if TYPE_CHECKING:
    from antrea.apis.crd.definition import Crd
    from antrea.features.framework.gate_row import Component

T = TypeVar("T")


class Review(msgspec.Struct, Generic[T], frozen=True):
    """Object about to be written; `object` is None on DELETE, `old` on CREATE."""

    operation: Operation
    object: T | None
    old: T | None = None
    user: UserInfo = UserInfo()
    name: str = ""
    namespace: str = ""

    @property
    def new(self) -> T:
        """The object after the write. Raises Invalid where the request lacks it."""
        if self.object is None:
            raise Invalid("object", f"is missing in a review of {self.operation}")
        return self.object

    @property
    def before(self) -> T:
        """The object before the write. Raises Invalid where the request lacks it."""
        if self.old is None:
            raise Invalid("oldObject", f"is missing in a review of {self.operation}")
        return self.old


class Warn(msgspec.Struct, frozen=True):
    """A sentence that kubectl prints after `Warning: `; the object is admitted."""

    text: str


class Find(msgspec.Struct, frozen=True):
    """Request for the object `name` of a collection, as `kind`; the answer is None if it does not exist or the name is invalid."""

    collection: str
    name: str
    kind: type
    namespace: str = ""

    @property
    def path(self) -> str | None:
        """Path of the object in the API; None for invalid names, which could lead anywhere."""
        if not is_object_name(self.name) or not (is_object_name(self.namespace) or not self.namespace):
            return None
        root, _, plural = self.collection.rpartition("/")
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{scope}/{plural}/{self.name}"


class FindAll(msgspec.Struct, frozen=True):
    """Request for all objects of a collection, as `kind`."""

    collection: str
    kind: type


class MayGet(msgspec.Struct, frozen=True):
    """Question whether the reviewed user may read a Secret; the answer is a bool."""

    namespace: str
    secret: str


Step = Warn | Find | FindAll | MayGet
Steps = Generator[Step, Any, None]
Validator = Callable[[Facts, Review[Any]], Steps]


class Patch(msgspec.Struct, frozen=True):
    """One operation of a JSON patch (RFC 6902); `path` is a JSON pointer."""

    path: str
    value: Any
    op: Literal["add", "replace", "remove"] = "replace"


Mutator = Callable[[Facts, Review[Any]], Iterable[Patch]]


class Installation(Fact, frozen=True):
    """Identity of the controller in the cluster, and the gates that the user wants."""

    namespace: str = "kube-system"
    service_account: str = "antrea-controller"
    gates: frozenset[str] = frozenset()
    """Gates that configuration and upstream's defaults turn on, whether the feature is built here or not."""


OF_THIS_NODE = "spec.nodeName={node}"
"""Field selector of the Pods of this agent's Node."""


class Watched(msgspec.Struct, frozen=True):
    """Collection of the API that is kept as rows; `row` makes those of one object of `kind`."""

    path: str
    kind: type
    fact: type[Fact]
    row: Callable[[Any], Rows]
    guards: Literal["", "all", "its Pods", "its own"] = ""
    """Pods whose network depends on an object, which must be known before they start: those of the whole cluster, of the
    Namespace

    that the object is, or of its own Namespace.
    """
    optional: bool = False
    """Whether a cluster may lack the kind, and then has no objects of it; else its absence is a failure."""
    field_selector: str = ""
    """Selector of the watched objects, such as "spec.nodeName={node}", where {node} is the name of this Node; empty for all."""
    metadata_only: bool = False
    """Whether the API server sends only the metadata of the objects."""
    fence: Literal["", "objects", "collection"] = ""
    """Versions for which a new leader waits, as decisions behind these rows must not be made twice: those of each object, by the
    uid and generation in the row; that of the collection, where objects have no generation or not each gives a row; or none.
    """


class Webhook(msgspec.Struct, frozen=True):
    """One webhook: what the API server sends it, and what it decides."""

    name: str
    path: str
    operations: tuple[Operation, ...]
    group: str
    versions: tuple[str, ...]
    resource: str
    scope: Literal["Cluster", "Namespaced", "*"]
    kind: Any
    """Struct type that the reviewed object is decoded into."""
    rules: str
    """Rules of the webhook, one line for docs/admission.md."""
    configuration: str = "crdvalidator.antrea.io"
    """Name of the webhook configuration object."""
    validate: Validator | None = None
    mutate: Mutator | None = None
    gates: tuple[str, ...] = ()
    """One of these must be on; empty: always served."""
    feature: str = ""
    """The gate of the feature that acts on the object, where `gates` does not name it."""
    failure: Literal["", "Fail", "Ignore"] = ""
    """Behavior of the API server without an answer; empty for its default, Fail."""
    aliases: tuple[str, ...] = ()
    """Further paths that older configurations use."""
    reads: tuple[type[Fact], ...] = ()
    """Kinds that must have been listed before it can decide."""
    anew: tuple[Watched, ...] = ()
    """Small collections that are listed again for each decision: uniqueness cannot be judged by a watch that lags."""


def feature_warning(crd: Crd) -> Webhook:
    """Make the webhook of a kind for which upstream has none: it warns while the feature is off or not built, and denies nothing."""
    return Webhook(
        f"{crd.plural}.feature.antrea.io",
        f"/validate/feature/{crd.plural}",
        ("CREATE",),
        "crd.antrea.io",
        tuple(version.name for version in crd.versions),
        crd.plural,
        "*",
        dict[str, Any],
        "warns while the feature is off or not built",
        # of several gates the last is the one that acts on the kind; those before it let policies select its objects
        feature=crd.gates[-1],
        failure="Ignore",
    )


def wanted_gates(configured: Mapping[str, bool]) -> frozenset[str]:
    """Return the gates that are on by `featureGates` and upstream's defaults, as if all were built. Raises Invalid.

    The chart writes one map for agents and controller, so gates of both are known here.
    """
    built = tuple(msgspec.structs.replace(gate, built=True) for gate in GATES)
    components: tuple[Component, ...] = ("agent", "controller")
    return frozenset().union(*(resolve(component, configured, built).names for component in components))


def is_off(webhook: Webhook, wanted: frozenset[str]) -> bool:
    """Whether every gate of `webhook` is off."""
    return bool(webhook.gates) and not wanted.intersection(webhook.gates)


def gate_steps(webhook: Webhook, wanted: frozenset[str], operation: Operation = "CREATE") -> Steps:
    """Deny if every gate of `webhook` is off, warn if its feature is off or not built yet. Raises Invalid.

    Deletion is always allowed. A gate that only agents read is in their configuration, so its setting is not known here.
    """
    names = webhook.gates
    built = {gate.name for gate in GATES if gate.built}
    read_here = {gate.name for gate in GATES if "controller" in gate.components}
    if is_off(webhook, wanted) and operation != "DELETE":
        which = " or ".join(names)
        later = "" if built.intersection(names) else " (the feature is not built yet)"
        raise Invalid(
            "kind", f"{webhook.resource} need the feature gate {which}, which is off{later}: see featureGates"
        )
    feature = webhook.feature or next((name for name in names if name in wanted), "")
    if feature and feature not in built and operation != "DELETE":
        yield Warn(f"the feature {feature} is not built yet: the object is kept, but nothing acts on it")
    elif feature in read_here and feature not in wanted and operation != "DELETE":
        yield Warn(
            f"the feature gate {feature} is off: the object is kept, but nothing acts on it; see featureGates"
        )

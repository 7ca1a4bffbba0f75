"""Metrics of our own in Prometheus' text format, rendered on request.

prometheus_client would add `_total` to names of counters, which upstream's do not have.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Sample(msgspec.Struct, frozen=True):
    """One line; `suffix` is that of a histogram's parts, such as _bucket."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Metric(msgspec.Struct, frozen=True):
    """One row of docs/metrics.md: upstream's name, stability and sentence."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    stability: Literal["ALPHA", "STABLE"]
    help: str

    def text(self, samples: Iterable[Sample]) -> str:
        """Header and lines."""
        lines = [f"# HELP {self.name} [{self.stability}] {self.help}", f"# TYPE {self.name} {self.kind}"]
        for sample in samples:
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
            lines.append(f"{self.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {sample.value:g}")
        return "\n".join(lines) + "\n"


class Histogram:
    """How many observations were at most as large as each of `bounds`, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def note(self, value: float, added: float | None = None) -> None:
        """One more; the sum grows by `added` instead, where that is given."""
        self._sum += value if added is None else added
        self._counts[bisect_left(self._bounds, value)] += 1

    def samples(self, labels: Mapping[str, str] = MappingProxyType({})) -> Iterator[Sample]:
        """Its lines, each with these labels."""
        return histogram_samples(self._bounds, list(accumulate(self._counts)), self._sum, labels)


def histogram_samples(
    bounds: Sequence[float],
    within: Sequence[int],
    total: float,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Sample]:
    """Lines of a histogram; `within`: how many observations were at most as large as each bound, then all."""
    for bound, number in zip(bounds, within, strict=False):
        yield Sample(number, {**labels, "le": f"{bound:g}"}, "_bucket")
    yield Sample(within[-1], {**labels, "le": "+Inf"}, "_bucket")
    yield Sample(round(total, 3), labels, "_sum")
    yield Sample(within[-1], labels, "_count")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def measured() -> str:
    """The metrics that every process has, of this one."""
    from prometheus_client import generate_latest  # noqa: PLC0415 (a MiB until somebody asks)

    return generate_latest().decode()

"""Times as Kubernetes writes them: RFC 3339 in UTC, whole seconds."""

from __future__ import annotations

import time

FORM = "%Y-%m-%dT%H:%M:%SZ"


def stamp(at: float | None = None) -> str:
    """Format `at`, seconds since the epoch, or the present time. Source: apimachinery's pkg/apis/meta/v1/time.go."""
    return time.strftime(FORM, time.gmtime(at))


def stamp_in(seconds: float) -> str:
    """Format the time so many seconds from now."""
    return stamp(time.time() + seconds)


def epoch() -> int:
    """Whole seconds since 1970, for statuses that show a moment."""
    return int(time.time())

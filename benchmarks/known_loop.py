"""A loop of known cost: how much slower this machine is now than one that nobody else uses, on which targets were set.

python -m benchmarks.known_loop    the least seconds of many loops, from which QUIET_SECONDS was taken
"""

from __future__ import annotations

import subprocess
import sys
import time

QUIET_SECONDS = 0.0266
"""Of the processor for one loop: the least of 800 in 40 processes, on two cores of the kind that the seconds of targets were
measured on. Processor time and the least of many leave out what others do, unless they do it all the time."""
STARVED = 1.5
"""Seconds of the clock for each of the processor from which on the clock says nothing of the code."""
PROCESSES, IN_EACH = 40, 20


def loop_seconds(times: int = 3) -> float:
    """Seconds of the processor for the loop, the smallest of some: it makes tuples and keeps them in a dictionary."""
    return min(_once() for _ in range(times))


def _once() -> float:
    begun, kept = time.process_time(), dict[int, tuple[int, object]]()
    for number in range(300_000):
        kept[number & 4095] = (number, kept.get(number - 1 & 4095, (0, None))[0])
    return time.process_time() - begun


def loops(seconds: float) -> float:
    """The same as a number of loops on the quiet machine."""
    return seconds / QUIET_SECONDS


def name_starved(clock: float, processor: float) -> None:
    """Print that the machine is starved, if so many seconds of the clock for those of the processor mean that."""
    if clock >= STARVED * processor:
        times = clock / processor
        print(
            f"starved: the clock took {times:.1f} times as long as the processor was busy, so time is no figure of this code"
        )


def name_starved_now() -> None:
    """Print that the machine is starved, if the loop says so now."""
    clock, processor = time.perf_counter(), time.process_time()
    loop_seconds()
    name_starved(time.perf_counter() - clock, time.process_time() - processor)


def main() -> None:
    """Print the least of many loops, each some in a process of their own."""
    code = f"from benchmarks.known_loop import loop_seconds; print(loop_seconds({IN_EACH}))"
    command = [sys.executable, "-c", code]
    found = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(PROCESSES)]
    print(
        f"the least of {PROCESSES * IN_EACH} loops: {min(found):.4f} s; of the processes: {min(found):.4f} to {max(found):.4f} s"
    )


if __name__ == "__main__":
    main()

"""One module per question: `python -m benchmarks.<name>` prints its figures."""

import sys
from pathlib import Path

# where the generators, the oracle and the form of figures are that benchmarks and tests share, as for pytest (pyproject.toml)
if (shared := str(Path(__file__).parents[1] / "tests/shared")) not in sys.path:
    sys.path.append(shared)

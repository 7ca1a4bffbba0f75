"""One module per question: `python -m benchmarks.<name>` prints its figures."""

"""Measured comparisons with named peers: ``python -m benchmarks NAME [--json] [--full]``."""

"""The faults of a machine, made for real or in the calls of one process (docs/faults.md)."""

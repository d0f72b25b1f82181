"""The sandbox of runs: what the machine allows."""

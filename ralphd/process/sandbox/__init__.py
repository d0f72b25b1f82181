"""What keeps a run from the rest of the machine (A1, A2)."""

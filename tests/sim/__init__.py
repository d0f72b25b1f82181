"""Nights that are played: both pure cores, a clock that nobody waits for, and what goes wrong by seed."""

"""Decides: no clock, no dice, no files, no tasks. A fact comes in, a new state and orders come out."""

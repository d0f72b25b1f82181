"""Upgrades: another version takes over the state directory, the events and the runs that live."""

"""Checks of everything ralphd depends on, each with the command that fixes what it finds."""

"""The live view of one ralph, for ``build`` and ``attach``: its log, and below it its present state."""

"""The agents: one module a CLI, with how it is started and how its lines are read."""

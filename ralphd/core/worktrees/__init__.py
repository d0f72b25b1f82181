"""Worktrees of ralphs, and the tasks that they share."""

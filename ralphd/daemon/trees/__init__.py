"""Ralphs in worktrees of their own."""

"""Git's part of worktrees."""

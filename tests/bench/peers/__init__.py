"""The supervisors beside ours: each private, in a directory of its own, spoken to as its own client does."""

"""Configuration: ``ralph.toml``, the user's file, the environment and flags, read into frozen specs."""

"""ralphd, the Regent: supervises unattended coding-agent loops and keeps them honest."""

__version__ = "0.2.0"

"""``ralphctl top``: all ralphs on one screen, by who needs a person; one connection, no polling."""

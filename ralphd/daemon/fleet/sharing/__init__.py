"""What machines of a fleet show each other of their ralphs: logs and events."""

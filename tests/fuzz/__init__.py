"""Requests and texts that nobody would write: ``make fuzz``, and a short part in the ordinary tests."""

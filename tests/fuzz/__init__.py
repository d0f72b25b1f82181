"""Requests and texts that nobody would write: ``make fuzz``, and a short seeded part in the ordinary tests."""

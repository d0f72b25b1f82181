"""What a host does for a fleet: the items that it works on."""

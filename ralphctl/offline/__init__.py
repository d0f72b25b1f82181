"""Read what the daemon left on disk, and the processes below this one, while no daemon answers."""

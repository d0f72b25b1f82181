"""The page of ``ralphctl web``: a process of its own, started by the daemon, that speaks HTTP to browsers.

What parses the network does not share a process with what supervises. It talks to the daemon through the
control socket alone, like every client.
"""

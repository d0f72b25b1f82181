"""``ralphctl demo``: a badly behaved loop, a private daemon, and the proof that nothing of them is left."""

"""``ralphctl report``: what a ralph did in a span of time, read from its files, with or without a daemon."""

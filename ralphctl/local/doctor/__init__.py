"""``ralphctl doctor``: a look at all that ralphd depends on, and what to do where something is not right."""

"""The page of ``ralphctl web``, as the daemon sees it: a process that it keeps."""

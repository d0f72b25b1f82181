"""Set up a directory for ralphd: write its first files (``init``), show, check and edit its configuration."""

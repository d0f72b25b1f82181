"""Each way to install ralphd, for real: `make test-install`."""

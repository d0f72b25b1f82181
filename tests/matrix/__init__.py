"""Every failpoint of the product, with what a death there is checked with (docs/failpoints.md)."""

"""The completion scripts of shells, made from the commands themselves: no Python is started at a TAB."""

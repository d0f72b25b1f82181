"""What a run may try against its supervision and its user, and what comes of it at each level: one table."""

from typing import Final

LEVELS: Final = ("none", "signals", "write", "box")
RESULTS: Final = {"o": "open", "x": "refused", "r": "repaired"}
_TABLE: Final = """
kill_daemon                   | o x x x | `kill -9` of the daemon, by pid
kill_sibling                  | o x x x | `kill -9` of another run
kill_loop                     | o x x x | an agent kills the built-in loop
signal_by_pidfd               | o x x x | `pidfd_send_signal`
signal_a_thread               | o x x x | `tgkill`
signal_from_a_new_session     | o x x x | a signal from `setsid` and a double fork
signal_from_a_memory_file     | o x x x | a signal from a program in memory (`memfd`)
trace                         | o x x x | `ptrace` of the daemon
write_memory_file             | o x x x | a write to `/proc/PID/mem` of the daemon
write_memory_by_call          | o x x x | `process_vm_writev` into the daemon
connect_to_an_abstract_socket | o x x x | a connection to an abstract socket outside of the run
connect_to_the_users_bus      | o o o x | a connection to the user's D-Bus (`systemd-run --user`)
connect_to_docker             | o o o x | a connection to `docker.sock`
connect_to_tmux               | o o o x | a connection to a tmux server in `/tmp`
write_state                   | o o x x | a new file in the state directory
rename_into_state             | o o x x | a file renamed into the state directory
link_into_state               | o o x x | a hard link into the state directory
symlink_into_state            | o o x x | a symbolic link in the state directory
truncate_state                | o o x x | a file of the state directory truncated
remove_the_socket             | r r x x | the daemon's socket removed
replace_a_definition          | o o x x | `ralph.json` replaced
change_the_mode_of_state      | o o o x | `chmod` of the state directory
change_the_times_of_state     | o o o x | `utimes` of a file of the state directory
mount_the_state               | o o x x | the state directory mounted elsewhere (`unshare -m`)
make_a_disk                   | o o x x | a device node made and written (root)
write_bashrc                  | o o x x | a line in `~/.bashrc`
write_outside                 | o o x x | a file outside of the working directory
plant_a_hook                  | r r r x | `.git/hooks/pre-commit`
plant_a_file_watcher          | o o r x | `core.fsmonitor` in `.git/config`
plant_a_link                  | x x x x | a link in the working directory that ralphd would follow
forge_the_signpost            | x x x x | a forged `.ralph/lock`
kill_shim                     | o x x x | `kill -9` of its own shim
"""
_INTRODUCTION: Final = """# What a run can reach

<!-- Written by `make docs` from `tests/process/sandbox/escapes.py`. -->

`[sandbox] level` sets what the kernel refuses to a run ([security](security.md)). A test tries each escape of
this table at each level. *repaired*: the kernel allows it, and the daemon restores what was there. `signals`
and `write` need Linux 6.12, `box` needs bubblewrap.

In the table, *the daemon* stands for any process outside of the run.

"""
REPAIRED_BY: Final = {
    "remove_the_socket": "tests/whole/test_daemon.py::test_a_socket_that_was_removed_is_made_anew",
    "plant_a_hook": "tests/whole/test_custody.py::test_a_hook_that_refuses_commits_does_not_end_the_work",
    "plant_a_file_watcher": "tests/whole/test_custody.py::test_a_planted_hook_is_restored_at_level_write",
}
"""The tests that show a repair; here only the deed is tried."""


def rows() -> dict[str, tuple[str, dict[str, str]]]:
    """Each escape with its words and its result per level; the one that ends the run is the last."""
    split = [[cell.strip() for cell in line.split("|")] for line in _TABLE.strip().splitlines()]
    results = {name: [RESULTS[cell] for cell in cells.split()] for name, cells, _ in split}
    return {name: (words, dict(zip(LEVELS, results[name], strict=True))) for name, _, words in split}


def escapes_page() -> str:
    """``docs/escapes.md``: the table for people."""
    head = "| an agent tries | " + " | ".join(f"`{level}`" for level in LEVELS) + " |"
    lines = [f"| {words} | " + " | ".join(cells.values()) + " |" for words, cells in rows().values()]
    return _INTRODUCTION + "\n".join((head, "| --- |" + " --- |" * len(LEVELS), *lines)) + "\n"

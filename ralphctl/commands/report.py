"""report, show and diff: a night, one iteration, and its changes as git shows them. They read files."""

import gc
import json
import os
import sys
import time
from pathlib import Path

import click

from ralphctl.cli import click_ext, completers
from ralphctl.cli.click_ext import CommonCommand, end_if_json, time_option, wants_json
from ralphctl.client.discovery import check_name, here
from ralphctl.format.humanize import last_evening
from ralphctl.format.output import columns, has_colour
from ralphd.errors import NotFound, UnusableState, UsageError

since_option = time_option("--since", "Start: 8h, 18:00, 2026-11-21.  [18:00 yesterday]")


@click.command(cls=CommonCommand)
@click_ext.ralph_argument
@since_option
@time_option("--until", "End.  [now]")
@click.option("-a", "--all", "every", is_flag=True, help="All ralphs, in the directory of one, too.")
@click.option("--md", is_flag=True, help="Print Markdown.")
@click.option("--html", "as_html", is_flag=True, help="Print one HTML file, with every iteration.")
@click.option("--open", "opened", is_flag=True, help="Write the HTML to a file and open it in the browser.")
def report(
    name: str | None, since: float | None, until: float | None, every: bool, md: bool, as_html: bool,
    opened: bool,
) -> None:  # fmt: skip
    """Show what NAME did since last evening: tasks, commits, reverts, times, costs, and what to do next.

    Without NAME, the ralph of this directory, else all ralphs. Works without a daemon.

    \b
      ralphctl report                        since 18:00 of the day before
      ralphctl report api --since 8h --md    the last eight hours, as Markdown
      ralphctl report --all --open           all ralphs, in the browser
    """
    as_html = as_html or opened
    if md + as_html + wants_json() > 1:
        why = "choose one of them"
        raise UsageError("--md, --html or --json at once", why=why, mend="ralphctl report --md")
    now = time.time()
    until = now if until is None else min(until, now)
    since = last_evening(now) if since is None else since
    if since >= until:
        why = "the span is empty"
        raise UsageError("--since is not before --until", why=why, mend="ralphctl report --since 8h")
    from ralphctl.report import model, page, read, text

    gc.disable()  # hundreds of thousands of objects without cycles, then the process ends: saves a quarter
    sources = read.choose(None if name is None else check_name(name), here(), os.environ, every=every)
    reports = [read.read(source, since, until, now) for source in sources]
    gc.freeze()  # what was read stays until the process ends, and is not gone through once more at its end
    queues = read.landing(reports, since, until)
    if wants_json():
        print(json.dumps(model.document(reports, since, until) | {"landing": queues}, ensure_ascii=False))
        return
    shown = text.page(reports[0], now) if len(reports) == 1 else text.overview(reports, since, until, now)
    shown = text.with_landing(shown, queues, now)
    if as_html:
        from ralphctl.report.html import details, document

        html = document.document(shown, [details.details(each) for each in reports], now)
        _open(html, "all" if len(reports) > 1 else reports[0].source.name) if opened else _print(html)
    elif md:
        print(page.markdown(shown))
    else:
        out = sys.stdout
        print(page.plain_text(shown, columns=columns(out), colour=has_colour(out), encoding=out.encoding))


def _print(html: str) -> None:
    sys.stdout.buffer.write(html.encode(errors="backslashreplace"))  # whatever the terminal's encoding is


def _open(html: str, name: str) -> None:
    import webbrowser

    from ralphctl.report.html import save

    try:
        path = save(html, name, os.environ)
    except OSError as fault:
        what = f"the report cannot be written: {fault}"
        raise UnusableState(what, mend="ralphctl report --html > FILE") from fault
    is_open = webbrowser.open(path.as_uri())
    print(f"report: {path}" + ("" if is_open else "  (no browser found here; open it yourself)"))


_NUMBERS = r"\d+|.*:.*"


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [N]", shell_complete=completers.ralphs)
def show(words: tuple[str, ...]) -> None:
    """Show one iteration: task, agent, its words, its changes, verdict, cost and time.

    N is the number that `ralphctl verdicts` shows, RUN:N that of an earlier run. Without N, the last finished
    iteration. Works without a daemon.

    \b
      ralphctl show              the last iteration of the ralph in this directory
      ralphctl show api 3        iteration 3 of api
      ralphctl show api 12:3     iteration 3 of its run 12
    """
    from ralphctl.report import diff, iteration, page, pages, read

    name, number = click_ext.name_and_number(words, "show", _NUMBERS)
    source = read.choose_one(name, here(), os.environ)
    facts = iteration.find(source, number)
    end_if_json({"name": source.name, **facts.end, "verdict": facts.verdict or None})
    commits = diff.commit_range(Path(source.directory), facts.commits)
    changed = diff.stat(Path(source.directory), commits) if commits else []
    printed = iteration.printed(source, facts)
    shown = pages.iteration_page(source.name, facts, printed, changed, time.time())
    click.echo(page.plain_text(shown, columns=columns(sys.stdout), colour=has_colour(sys.stdout)))


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [N]", shell_complete=completers.ralphs)
def diff(words: tuple[str, ...]) -> int:
    """Show what iteration N changed, as git shows it; also an iteration that was reverted.

    git uses your own pager and colours. No program that the repository names runs. N is as for
    `ralphctl show`.
    """
    from ralphctl.report import diff as changes
    from ralphctl.report import iteration, read

    name, number = click_ext.name_and_number(words, "diff", _NUMBERS)
    source = read.choose_one(name, here(), os.environ)
    facts = iteration.find(source, number)
    commits = changes.commit_range(Path(source.directory), facts.commits)
    if commits is None:
        why = changes.fault(Path(source.directory), facts.commits) if facts.commits else "no commit is known"
        run, name = f"run {facts.run_id[1:7].lstrip('0')}", source.name
        which = run if facts.number is None else f"iteration {facts.number}"
        mend = f"ralphctl show {name} {number or ''}".rstrip()
        raise NotFound(f"there is no diff of {which} of {name}", why=why, mend=mend)
    return changes.show_diff(Path(source.directory), commits)

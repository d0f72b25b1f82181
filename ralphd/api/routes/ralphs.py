"""Routes of ralphs: register, look, ask something of one, forget."""

import json
from functools import partial
from typing import Annotated

from fastapi import Query, Response

from ralphd.api import bodies, schemas
from ralphd.api.bodies import NoFields, RalphName, RunsQuery, ViewQuery
from ralphd.api.context import TheHost, json_bytes, routes
from ralphd.api.schemas import ACCEPTED, answers
from ralphd.core.loop import inbox
from ralphd.core.supervision import events as requests
from ralphd.daemon.registration import Registration

router = routes("/v1/ralphs", "ralphs")


@router.post("", status_code=201, responses=answers(schemas.RalphView, 201))
async def register_ralph(host: TheHost, asked: bodies.RegisterRequest) -> Response:
    """Register a ralph and start it. A known one that is stopped is replaced; one that runs is a conflict."""
    return json_bytes(await host.register(Registration(**asked.model_dump())), 201)


@router.get("", responses=answers(schemas.RalphsView))
async def list_ralphs(host: TheHost) -> Response:
    """Every ralph that is known."""
    return json_bytes(b'{"ralphs":[' + b",".join(each.view_bytes() for each in host.regents()) + b"]}")


@router.get("/{name}", responses=answers(schemas.RalphView))
async def show_ralph(host: TheHost, name: RalphName, query: Annotated[ViewQuery, Query()]) -> Response:
    """One ralph."""
    return json_bytes(await host.view_bytes(name, resources=query.resources))


@router.delete("/{name}", status_code=204)
async def forget_ralph(host: TheHost, name: RalphName) -> Response:
    """Forget a ralph that is not running. Its working directory is left alone."""
    await host.forget(name)
    return Response(status_code=204)


@router.post("/{name}/start", status_code=202, responses=ACCEPTED)
async def start_ralph(host: TheHost, name: RalphName, how: bodies.StartRequest | None = None) -> Response:
    """Start a ralph that is known."""
    how = how or bodies.StartRequest()
    return json_bytes(await host.start(name, how.flags, how.environment, resume=how.resume), 202)


@router.post("/{name}/stop", status_code=202, responses=ACCEPTED)
async def stop_ralph(host: TheHost, name: RalphName, how: bodies.StopRequest | None = None) -> Response:
    """Ask a ralph to stop. Answers at once; the event stream says when it has."""
    return json_bytes(await host.ask(name, requests.StopRequested, now=how.now if how else False), 202)


@router.post("/{name}/restart", status_code=202, responses=ACCEPTED)
async def restart_ralph(host: TheHost, name: RalphName, nothing: NoFields | None = None) -> Response:
    """Stop, then start."""
    return json_bytes(await host.ask(name, requests.RestartRequested), 202)


@router.post("/{name}/pause", status_code=202, responses=ACCEPTED)
async def pause_ralph(host: TheHost, name: RalphName, nothing: NoFields | None = None) -> Response:
    """Pause after the present iteration; an opaque command is stopped, with the goal paused (G2)."""
    return json_bytes(await host.ask(name, requests.PauseRequested), 202)


@router.post("/{name}/resume", status_code=202, responses=ACCEPTED)
async def resume_ralph(host: TheHost, name: RalphName, nothing: NoFields | None = None) -> Response:
    """Resume a paused ralph."""
    return json_bytes(await host.ask(name, requests.ResumeRequested), 202)


@router.post("/{name}/skip-wait", status_code=202, responses=ACCEPTED)
async def skip_wait(host: TheHost, name: RalphName, nothing: NoFields | None = None) -> Response:
    """End a wait now."""
    return json_bytes(await host.ask(name, requests.SkipWaitRequested), 202)


@router.post("/{name}/ack", status_code=202, responses=ACCEPTED)
async def acknowledge(host: TheHost, name: RalphName, nothing: NoFields | None = None) -> Response:
    """Acknowledge what a person was called for: no reminder follows.

    `incident` says what it was, until the ralph works again; where it runs already, the incident is over and
    the next call is sent at once. Where none is open nothing changes.
    """
    return json_bytes(await host.acknowledge(name), 202)


@router.post("/{name}/reload", status_code=202, responses=answers(schemas.ReloadedRalphView, 202))
async def reload_ralph(host: TheHost, name: RalphName, nothing: NoFields | None = None) -> Response:
    """Pin a ralph to what its files say now, with the flags and the environment of its start.

    A run that lives keeps the rules of its start; the next one gets the new ones. With faults nothing
    changes. ``when`` is ``now`` where no run lives, else ``next_run``.
    """
    view, changes, when = await host.reload_ralph(name)
    told = json.dumps([schemas.change_object(each) for each in changes]).encode()
    return json_bytes(b'{"ralph": %s, "changes": %s, "when": "%s"}' % (view, told, when.encode()), 202)


@router.get("/{name}/runs", responses=answers(schemas.RunsView))
async def list_runs(host: TheHost, name: RalphName, query: Annotated[RunsQuery, Query()]) -> Response:
    """The ralph's runs, newest first."""
    return json_bytes(json.dumps({"runs": await host.past(name, "runs", query.limit)}).encode())


@router.get("/{name}/iterations", responses=answers(schemas.IterationsView))
async def list_iterations(host: TheHost, name: RalphName, query: Annotated[RunsQuery, Query()]) -> Response:
    """The iterations that its runs have reported, newest first, each with its attempts, oldest first.

    One that was cut off has an `at` of null: nobody reported its end.
    """
    return json_bytes(json.dumps({"iterations": await host.past(name, "iterations", query.limit)}).encode())


@router.get("/{name}/verdicts", responses=answers(schemas.VerdictsView))
async def list_verdicts(host: TheHost, name: RalphName, query: Annotated[RunsQuery, Query()]) -> Response:
    """What was said of the commits of its iterations, newest first.

    Each with `iteration`, `task`, `commits`, `reverted`, `verdict`, `why`, `tests` and the seconds that they
    took (`tests_s`), `refs`, `at`, and whether it was `undone` since. Iterations without a commit have none.
    `repairs` are what was restored in the repository, as in the history.
    """
    judged, repaired = [await host.past(name, what, query.limit) for what in ("verdicts", "repairs")]
    return json_bytes(json.dumps({"verdicts": judged, "repairs": repaired}).encode())


@router.post("/{name}/tasks", status_code=201, responses=answers(schemas.InboxView, 201))
async def add_task(host: TheHost, name: RalphName, asked: bodies.SendRequest) -> Response:
    """Add a task for the built-in loop, which does it in its next iteration. The task list is not changed."""
    return json_bytes(await host.send(name, partial(inbox.with_task, text=asked.text)), 201)


@router.delete("/{name}/tasks/{id:path}", responses=answers(schemas.InboxView))
async def remove_task(host: TheHost, name: RalphName, id: str) -> Response:
    """Remove an added task by its number or text, or a pending note. An attempt in progress continues."""
    return json_bytes(await host.send(name, partial(inbox.without, id=id)))


@router.post("/{name}/notes", status_code=201, responses=answers(schemas.InboxView, 201))
async def add_note(host: TheHost, name: RalphName, asked: bodies.SendRequest) -> Response:
    """Add a note to the prompt of the built-in loop's next attempt. No later prompt has it."""
    return json_bytes(await host.send(name, partial(inbox.with_note, text=asked.text)), 201)


@router.post("/{name}/undo", responses=answers(schemas.UndoneView))
async def undo(host: TheHost, name: RalphName, which: bodies.UndoRequest | None = None) -> Response:
    """Put back what the guard has reverted: by a commit each on top of HEAD, and nothing is pushed.

    With `repair` instead: move the branch back to where the iteration left it that had lost commits.

    Refused (409) while a run lives or tests run (`wrong-state`), and where there is nothing to put back or
    git cannot do it (`not-undone`); then everything is as it was.
    """
    which = which or bodies.UndoRequest()
    return json_bytes(json.dumps(await host.undo(name, which.iteration, which.repair)).encode())

"""Routes of the fleet: its machines and items, and what people request of them."""

from pwd import getpwuid
from typing import Annotated, Literal

from fastapi import Header, Path, Query, Request, Response

from ralphd.api import bodies, schemas
from ralphd.api.bodies import EventsQuery, LogsQuery, NoFields, RalphName
from ralphd.api.context import TheHost, json_reply, routes, stream_reply
from ralphd.api.routes.events import Feed, begin_after
from ralphd.api.routes.logs import log_reply
from ralphd.api.schemas import EVENTS, ExplainedItemView, ExplanationView, OrderedView, answers
from ralphd.api.streams import StreamReply
from ralphd.daemon.ralph.callers import REQUESTED_BY

router = routes("/v1/fleet", "fleet")
HostName = Annotated[str, Path(pattern="^[a-z0-9][a-z0-9-]{0,62}$", description="A machine of the fleet.")]
ItemId = Annotated[str, Path(max_length=100, description="An item of the fleet.")]
ItemVerb = Literal["hold", "release", "cancel", "retry", "stop", "pause", "resume"]


def _person() -> str:
    """Return who sends this request, for other machines."""
    caller = REQUESTED_BY.get()
    try:
        return "someone" if caller is None else getpwuid(caller.uid).pw_name
    except KeyError:
        return "someone" if caller is None else f"uid {caller.uid}"


@router.get("", responses=answers(schemas.FleetView))
async def show_fleet(host: TheHost) -> Response:
    """Machines, items and limited accounts of the fleet; without the hub as last known."""
    return json_reply(host.fleet().view())


@router.post("/items", status_code=201, responses=answers(ExplainedItemView, 201))
async def submit_item(host: TheHost, asked: bodies.ItemRequest) -> Response:
    """Add an item: a repository, a branch of it, and what a machine needs to work on it.

    What runs is what that repository's `ralph.toml` says at `base`. Refused (422, `usage`) where the remote
    cannot be reached from here, or takes no atomic pushes.
    """
    return json_reply(await host.fleet().submit(asked.model_dump(), _person()), 201)


@router.get("/items/{item}/explain", responses=answers(ExplainedItemView))
async def explain_item(host: TheHost, item: ItemId) -> Response:
    """Why no machine takes an item: each need that each machine does not meet."""
    return json_reply(host.fleet().member.picture.explained(item))


@router.post("/items/{item}/takeover", responses=answers(ExplainedItemView))
async def take_over_item(host: TheHost, item: ItemId, nothing: NoFields | None = None) -> Response:
    """Take an item here from a machine that a person knows to be gone, without waiting for its silence.

    Refused (409, `wrong-state`) where nobody has it, this machine does not fit, or the other one answers.
    """
    return json_reply(await host.fleet().take_over(item, _person()))


@router.post("/items/{item}/{verb}", responses=answers(ExplainedItemView))
async def act_on_item(
    host: TheHost, item: ItemId, verb: ItemVerb, nothing: NoFields | None = None
) -> Response:
    """Hold an item for a person, release it, cancel it, try it again; stop, pause or resume it."""
    return json_reply(await host.fleet().act(item, verb, _person()))


@router.post("/hosts/{machine}/{verb}", status_code=202, responses=answers(OrderedView, 202))
async def drain_host(
    host: TheHost, machine: HostName, verb: Literal["drain", "undrain"], nothing: NoFields | None = None
) -> Response:
    """Have a machine give back its items and take no more, or take part again."""
    return json_reply(await host.fleet().drain(machine, verb, _person()), 202)


@router.get("/events", responses={200: EVENTS}, response_class=Response)
async def follow_fleet_events(
    request: Request, host: TheHost, query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamReply:  # fmt: skip
    """Server-sent events of all machines, as those of `GET /v1/events`, with the machine as `host`.

    The id counts in the fleet. Ends where the hub does not answer any more: come again with `Last-Event-ID`.
    """
    events = host.fleet().events
    begin = await begin_after(events, query, last_event_id)
    await events.since(begin, 1)  # refused now, where the hub does not answer, and not within the stream
    feed = Feed(events, host.hub, host.stopping, begin)
    return stream_reply(request, feed.polled() if query.follow else feed.kept(), "text/event-stream")


@router.get("/ralphs", responses=answers(schemas.FleetRalphsView))
async def list_fleet_ralphs(host: TheHost) -> Response:
    """The ralphs of the other machines, as last known: at once without the hub, within 5 s with it."""
    return json_reply(await host.fleet().ralphs())


@router.get("/ralphs/{machine}/{name}", responses=answers(schemas.RalphView))
async def show_fleet_ralph(host: TheHost, machine: HostName, name: RalphName) -> Response:
    """The view of a ralph on any machine of the fleet, which is named `MACHINE/NAME` in it."""
    return json_reply(await host.fleet().ralph(machine, name))


@router.get("/ralphs/{machine}/{name}/explain", responses=answers(ExplanationView))
async def explain_fleet_ralph(host: TheHost, machine: HostName, name: RalphName) -> Response:
    """Why the Regent of a ralph on any machine last acted, as `GET /v1/ralphs/{name}/explain`."""
    return json_reply(await host.fleet().explain(machine, name))


@router.get("/ralphs/{machine}/{name}/logs", responses={200: schemas.LOG}, response_class=Response)
async def read_fleet_log(
    request: Request, host: TheHost, machine: HostName, name: RalphName, query: Annotated[LogsQuery, Query()]
) -> StreamReply:
    """The log of a ralph on any machine, as `GET /v1/ralphs/{name}/logs`.

    With `follow` it ends where the machine does not answer any more: come again with `cursor`.
    """
    log = host.fleet().log(machine, name)
    await log.check()
    return log_reply(request, log, query, host.stopping, lambda: log.has_ended)


@router.post("/ralphs/{machine}/{name}/{verb}", status_code=202, responses=answers(OrderedView, 202))
async def order_ralph(
    host: TheHost, machine: HostName, name: RalphName, verb: Literal["stop", "pause", "resume"],
    nothing: NoFields | None = None,
) -> Response:  # fmt: skip
    """Have a ralph on any machine stop, pause or resume. `done` is false where the machine is absent.

    Then the hub keeps the request for a day, and the machine gets it when it is back.
    """
    return json_reply(await host.fleet().order(machine, name, verb, _person()), 202)

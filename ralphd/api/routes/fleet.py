"""Routes of the fleet: its machines and items, and what people request of them."""

import json
from pwd import getpwuid
from typing import Annotated, Any, Literal

from fastapi import Path, Response

from ralphd.api import bodies
from ralphd.api.bodies import NoFields, RalphName
from ralphd.api.context import TheHost, json_bytes, routes
from ralphd.api.schemas import ExplainedItemView, FleetView, OrderedView, answers
from ralphd.daemon.ralph.callers import REQUESTED_BY

router = routes("/v1/fleet", "fleet")
HostName = Annotated[str, Path(pattern="^[a-z0-9][a-z0-9-]{0,62}$", description="A machine of the fleet.")]
ItemId = Annotated[str, Path(pattern="^i-[a-z2-7]{4,26}$", description="An item of the fleet.")]
ItemVerb = Literal["hold", "release", "cancel", "retry", "stop", "pause", "resume"]


def _json(value: Any, status: int = 200) -> Response:
    return json_bytes(json.dumps(value, ensure_ascii=False).encode(errors="replace"), status)


def _person() -> str:
    """Return who sends this request, for other machines."""
    caller = REQUESTED_BY.get()
    try:
        return "someone" if caller is None else getpwuid(caller.uid).pw_name
    except KeyError:
        return "someone" if caller is None else f"uid {caller.uid}"


@router.get("", responses=answers(FleetView))
async def show_fleet(host: TheHost) -> Response:
    """Machines, items and limited accounts of the fleet; without the hub as last known."""
    return _json(host.fleet().view())


@router.post("/items", status_code=201, responses=answers(ExplainedItemView, 201))
async def submit_item(host: TheHost, asked: bodies.ItemRequest) -> Response:
    """Add an item: a repository, a branch of it, and what a machine needs to work on it.

    What runs is what that repository's `ralph.toml` says at `base`. Refused (422, `usage`) where the remote
    cannot be reached from here, or takes no atomic pushes.
    """
    return _json(await host.fleet().submit(asked.model_dump(), _person()), 201)


@router.get("/items/{item}/explain", responses=answers(ExplainedItemView))
async def explain_item(host: TheHost, item: ItemId) -> Response:
    """Why no machine takes an item: each need that each machine does not meet."""
    return _json(host.fleet().member.picture.explained(item))


@router.post("/items/{item}/{verb}", responses=answers(ExplainedItemView))
async def act_on_item(
    host: TheHost, item: ItemId, verb: ItemVerb, nothing: NoFields | None = None
) -> Response:
    """Hold an item for a person, release it, cancel it, try it again; stop, pause or resume it."""
    return _json(await host.fleet().act(item, verb, _person()))


@router.post("/hosts/{machine}/{verb}", status_code=202, responses=answers(OrderedView, 202))
async def drain_host(
    host: TheHost, machine: HostName, verb: Literal["drain", "undrain"], nothing: NoFields | None = None
) -> Response:
    """Have a machine give back its items and take no more, or take part again."""
    return _json(await host.fleet().drain(machine, verb, _person()), 202)


@router.get("/ralphs/{machine}/{name}", responses=answers(OrderedView))
async def show_fleet_ralph(host: TheHost, machine: HostName, name: RalphName) -> Response:
    """The view of a ralph on any machine of the fleet."""
    return _json({"ralph": await host.fleet().ralph(machine, name)})


@router.post("/ralphs/{machine}/{name}/{verb}", status_code=202, responses=answers(OrderedView, 202))
async def order_ralph(
    host: TheHost, machine: HostName, name: RalphName, verb: Literal["stop", "pause", "resume"],
    nothing: NoFields | None = None,
) -> Response:  # fmt: skip
    """Have a ralph on any machine stop, pause or resume. `done` is false where the machine is absent.

    Then the hub keeps the request for a day, and the machine gets it when it is back.
    """
    return _json(await host.fleet().order(machine, name, verb, _person()), 202)

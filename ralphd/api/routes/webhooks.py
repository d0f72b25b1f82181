"""Routes of webhooks and their deliveries."""

from typing import Annotated

from fastapi import Path, Query, Response

from ralphd.api import bodies, schemas
from ralphd.api.bodies import MAX_EVENT_ID, NoFields, RunsQuery
from ralphd.api.context import TheHost, json_reply, routes
from ralphd.api.schemas import answers
from ralphd.core.delivery import Destination, Format

router = routes("/v1", "webhooks")
WebhookId = Annotated[str, Path(description="The webhook's id or name.", max_length=64)]
DeliveryId = Annotated[int, Path(description="The delivery's id.", ge=0, le=MAX_EVENT_ID)]


@router.get("/webhooks", responses=answers(schemas.WebhooksView))
async def list_webhooks(host: TheHost) -> Response:
    """List the webhooks of the user's file, of the ralphs' files, and those added by command.

    The reply has no full URL, which may contain a token, and no secret.
    """
    return json_reply({"webhooks": await host.webhooks.views()})


@router.post("/webhooks", status_code=201, responses=answers(schemas.AddedView, 201))
async def add_webhook(host: TheHost, asked: bodies.WebhookRequest) -> Response:
    """Add a webhook, or replace the one with the same URL, which is enabled again if it had answered 410.

    For `json`, a secret is generated if the request names none. The view names its file (0600).
    """
    fields = asked.model_dump() | {"on": tuple(asked.on), "format": Format(asked.format)}
    return json_reply(await host.webhooks.add(Destination(**fields)), 201)


@router.delete("/webhooks/{id}", status_code=204)
async def remove_webhook(host: TheHost, id: WebhookId) -> Response:
    """Remove an added webhook and cancel its pending messages."""
    await host.webhooks.remove(id)
    return Response(status_code=204)


@router.post("/webhooks/{id}/test", responses=answers(schemas.TestedView))
async def test_webhook(host: TheHost, id: WebhookId, nothing: NoFields | None = None) -> Response:
    """Send a test now, and return the result within 10 seconds.

    A success also sends the pending messages, and enables a webhook that had answered 410.
    """
    return json_reply(await host.webhooks.test(id))


@router.get("/webhooks/{id}/deliveries", responses=answers(schemas.DeliveriesView))
async def list_deliveries_to(host: TheHost, id: WebhookId, query: Annotated[RunsQuery, Query()]) -> Response:
    """List the deliveries to a webhook, newest first."""
    return json_reply({"deliveries": await host.webhooks.deliveries(id, query.limit)})


@router.get("/deliveries", responses=answers(schemas.DeliveriesView))
async def list_deliveries(host: TheHost, query: Annotated[RunsQuery, Query()]) -> Response:
    """List the deliveries to all webhooks, also removed ones, newest first."""
    return json_reply({"deliveries": await host.webhooks.deliveries(None, query.limit)})


@router.post("/deliveries/{id}/replay", status_code=202, responses=answers(schemas.DeliveryView, 202))
async def replay_delivery(host: TheHost, id: DeliveryId, nothing: NoFields | None = None) -> Response:
    """Send the message of a delivery again, under the same `webhook-id`; a pending one is sent now."""
    return json_reply(await host.webhooks.replay(id), 202)

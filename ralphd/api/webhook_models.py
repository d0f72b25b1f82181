"""What replies about webhooks look like, for OpenAPI."""

from typing import Any, Literal

from pydantic import BaseModel


class SecretView(BaseModel):
    """Where a webhook's secret is, never what it is. ``made``: ralphd made it up, ``name`` is its file."""

    origin: Literal["file", "environment", "made"]
    name: str


class GoneView(BaseModel):
    """The receiver said that it wants nothing more; that stands until a test arrives, or it is added anew."""

    why: str
    at: str


class ToldView(BaseModel):
    """The event that a delivery tells of."""

    id: int
    type: str
    at: str
    ralph: str | None


class DeliveryView(BaseModel):
    """One message to one webhook. ``next_at`` is null when it is not sent again; ``why`` it failed last.

    ``given_up`` is kept too, as long as its event; ``message_id`` is the ``webhook-id`` of every try.
    """

    id: int
    webhook: str
    where: str | None
    message_id: str
    event: ToldView
    state: Literal["pending", "delivered", "given_up"]
    queued_at: str
    failures: int
    next_at: str | None
    why: str | None
    done_at: str | None


class WebhookView(BaseModel):
    """One webhook. ``where`` is the address without what may be a token; ``last`` the last message to it.

    ``origin`` is ``added`` for one that was added over the API; else ``place`` is the file and line, and
    ``ralphs`` are those whose files name it (null: it is told of all).
    """

    id: str
    where: str
    on: list[str]
    format: Literal["json", "slack", "ntfy"]
    allow_private: bool
    secret: SecretView | None
    origin: Literal["file", "added"]
    place: str | None
    ralphs: list[str] | None
    added_at: str | None
    gone: GoneView | None
    last: DeliveryView | None


class AddedView(WebhookView):
    """The webhook that was added. ``secret_made``: its secret was made up now, and lies where it says.

    ``replaced``: it had been added before, with the same address.
    """

    secret_made: bool
    replaced: bool


class WebhooksView(BaseModel):
    """Every webhook."""

    webhooks: list[WebhookView]


class DeliveriesView(BaseModel):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]


class TestedView(BaseModel):
    """What came of a test. ``status`` is null where nobody answered; ``back``: it was gone, and is not."""

    id: str
    where: str
    arrived: bool
    status: int | None
    why: str | None
    took_s: float
    back: bool


WEBHOOKS: dict[str, Any] = {"model": WebhooksView, "description": "The webhooks."}
ADDED: dict[str, Any] = {"model": AddedView, "description": "The webhook."}
TESTED: dict[str, Any] = {"model": TestedView, "description": "What came back."}
DELIVERIES: dict[str, Any] = {"model": DeliveriesView, "description": "The deliveries."}
REPLAYED: dict[str, Any] = {"model": DeliveryView, "description": "The delivery that is queued."}

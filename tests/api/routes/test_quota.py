"""The route of the accounts."""

from typing import Any

from ralphd.api.schemas import QuotaView
from ralphd.core.quota import clock as quota
from ralphd.core.quota.model import QuotaClock, QuotaLimit, QuotaWindow
from tests.api.serving import Whole


async def test_the_accounts_are_listed_as_their_schema_says(api: Whole) -> None:
    clock = quota.limit_met(QuotaClock("claude@work", "claude"), QuotaLimit(200.0, 100.0, "", "a.1"))
    clock = quota.reported(clock, (QuotaWindow("five_hour", 1.0, 100.0, 190.0),))
    views: list[dict[str, Any]] = [quota.view_of(clock, 150.0)]
    api.host.accounts = views

    reply = await api.client.get("/v1/quota")

    assert reply.json() == {"accounts": views}
    assert QuotaView.model_validate(reply.json()).model_dump() == reply.json()


async def test_it_takes_no_query(api: Whole) -> None:
    assert (await api.client.get("/v1/quota?account=work")).status_code >= 400

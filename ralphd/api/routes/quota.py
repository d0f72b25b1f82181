"""The route of the accounts' quota clocks."""

import asyncio

from fastapi import Response

from ralphd.api.context import TheHost, json_reply, routes
from ralphd.api.schemas import QuotaView, answers

router = routes("/v1", "quota")


@router.get("/quota", responses=answers(QuotaView))
async def show_quota(host: TheHost) -> Response:
    """List the accounts of the agents: limits, used windows, who works and who waits.

    The clocks are those of all ralphs of the user, of `ralphctl build` too.
    """
    return json_reply({"accounts": await asyncio.to_thread(host.quota_views)})

"""Routes of webhooks: what is asked reaches the host as it was sent, and what does not fit is refused."""

from typing import Any, cast

import pytest

from ralphd.core.delivery import Destination, Format
from ralphd.errors import NotFound
from tests.api.serving import Whole

ID = "0123456789abcdef"


class Recorder:
    """Keeps what was asked, and answers with it."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    async def views(self) -> list[dict[str, str]]:
        return [{"id": ID}]

    async def add(self, new: Destination) -> dict[str, str]:
        self.asked.append(("add", new))
        return {"id": ID}

    async def remove(self, id: str) -> None:
        self.asked.append(("remove", id))
        if id != ID:
            raise NotFound("there is no webhook", mend="ralphctl webhooks list")

    async def test(self, id: str) -> dict[str, object]:
        self.asked.append(("test", id))
        return {"arrived": False}

    async def deliveries(self, id: str | None, limit: int) -> list[dict[str, int]]:
        self.asked.append(("deliveries", id, limit))
        return [{"id": 7}]

    async def replay(self, delivery: int) -> dict[str, int]:
        self.asked.append(("replay", delivery))
        return {"id": delivery + 1}


@pytest.fixture
def webhooks(api: Whole) -> Recorder:
    recorder = Recorder()
    cast(Any, api.host).webhooks = recorder
    return recorder


async def test_each_route_asks_what_it_says(api: Whole, webhooks: Recorder) -> None:
    body = {
        "url": "https://one.example",
        "on": ["*"],
        "format": "ntfy",
        "secret_file": "/a",
        "allow_private": True,
    }
    replies = [
        await api.client.get("/v1/webhooks"),
        await api.client.post("/v1/webhooks", json=body),
        await api.client.post("/v1/webhooks", json={"url": "https://two.example", "secret_env": "B"}),
        await api.client.delete(f"/v1/webhooks/{ID}"),
        await api.client.post(f"/v1/webhooks/{ID}/test"),
        await api.client.get(f"/v1/webhooks/{ID}/deliveries?limit=3"),
        await api.client.get("/v1/deliveries"),
        await api.client.post("/v1/deliveries/7/replay"),
    ]

    assert [reply.status_code for reply in replies] == [200, 201, 201, 204, 200, 200, 200, 202]
    assert replies[0].json() == {"webhooks": [{"id": ID}]}
    assert replies[5].json() == {"deliveries": [{"id": 7}]}
    assert webhooks.asked == [
        ("add", Destination("https://one.example", ("*",), Format.NTFY, True, "/a", None)),
        ("add", Destination("https://two.example", secret_env="B")),
        ("remove", ID),
        ("test", ID),
        ("deliveries", ID, 3),
        ("deliveries", None, 20),
        ("replay", 7),
    ]
    assert (await api.client.delete("/v1/webhooks/other")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": 7},
        {"url": "https://x.example", "secret": "whsec_hidden"},
        {"url": "https://x.example", "secret_file": "relative"},
        {"url": "https://x.example", "format": "xml"},
        {"url": "https://x.example", "on": "ralph.*"},
        {"url": "https://x.example/" + "hidden" * 20_000},
    ],
)
async def test_what_is_no_webhook_is_refused_and_not_repeated(
    api: Whole, webhooks: Recorder, body: dict[str, object]
) -> None:
    reply = await api.client.post("/v1/webhooks", json=body)

    assert reply.status_code == 422
    assert "hidden" not in reply.text
    assert webhooks.asked == []


@pytest.mark.parametrize("path", ["/v1/deliveries/x/replay", f"/v1/deliveries/{1 << 64}/replay"])
async def test_what_is_no_delivery_is_refused(api: Whole, webhooks: Recorder, path: str) -> None:
    assert (await api.client.post(path)).status_code == 422
    assert webhooks.asked == []

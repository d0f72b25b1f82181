"""A crowd of hosts at one hub; ``make bench`` has it with a thousand (fleet 12 e)."""

from tests.fleet.crowd import gathered
from tests.fleet.server import NatsServer


async def test_a_crowd_renews_its_leases(server: NatsServer) -> None:
    crowd = await gathered(server, 60, leases_each=3, play_s=2.5, renew_s=1.0)

    assert len(crowd.revisions) == 180
    assert len(crowd.waits_s) >= 360
    assert crowd.failed == 0

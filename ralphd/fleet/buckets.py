"""The buckets and the stream of a fleet: what the hub's administrator creates, and a host only uses.

Leases and items have no TTL: after a restart of the hub an expired lease would be free at once, however well
its holder is. A host can neither set one (header ``Nats-TTL``) nor empty a bucket (header ``Nats-Rollup``).

This module imports nats: import it at first use.
"""

from typing import Any, Final

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from ralphd.core.fleet.model import MOST_VALUE_BYTES
from ralphd.fleet.fabric import Bucket

DAY_S: Final = 24 * 3600.0
TTL_S: Final = {Bucket.HOSTS: 7 * DAY_S, Bucket.QUOTA: 35 * DAY_S, Bucket.WANTS: DAY_S}
BUCKET_BYTES: Final = 256 << 20
EVENT_BYTES: Final = 10 << 30
EVENT_DAYS: Final = 30.0
DUPLICATES_S: Final = 2 * 3600.0
EVENTS: Final = "EV"
_HEADROOM_BYTES: Final = 4 << 10
_SETTINGS: Final = (
    "max_bytes", "max_age", "max_msgs_per_subject", "max_msg_size", "num_replicas", "subjects",
    "allow_direct",
)  # fmt: skip


def stream_of(bucket: Bucket) -> str:
    """Return the stream that keeps a bucket."""
    return f"KV_{bucket}"


async def make_buckets(
    js: JetStreamContext, *, replicas: int = 1, event_bytes: int = EVENT_BYTES, event_days: float = EVENT_DAYS
) -> None:
    """Create the buckets and the stream; give those that exist these settings. Raises nats.errors.Error."""
    streams = [_stream(stream_of(each), f"$KV.{each}.>", replicas, **_bucket(each)) for each in Bucket]
    age_s = event_days * DAY_S
    limits = {"max_bytes": event_bytes, "max_age": age_s, "duplicate_window": min(DUPLICATES_S, age_s)}
    # Read in pages by number, without a consumer; a replica that is behind only shows the last ones later.
    streams.append(_stream(EVENTS, "ralph.ev.>", replicas, allow_direct=True, **limits))
    for config in streams:
        assert config.name is not None
        try:
            # Adding one that exists counts its bytes twice against the hub's storage.
            present = (await js.stream_info(config.name)).config
        except NotFoundError:
            await js.add_stream(config)
            continue
        config.num_replicas = max(config.num_replicas or 1, present.num_replicas or 1)  # a person's choice
        if any(getattr(present, key) != getattr(config, key) for key in _SETTINGS):
            await js.update_stream(config)


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "max_msgs_per_subject": 1, "max_age": TTL_S.get(bucket, 0.0), "max_bytes": BUCKET_BYTES,
        "discard": DiscardPolicy.NEW, "duplicate_window": 120.0, "allow_direct": False,
    }  # fmt: skip


def _stream(name: str, subject: str, replicas: int, **more: Any) -> StreamConfig:
    return StreamConfig(
        name=name, subjects=[subject], num_replicas=replicas,
        storage=StorageType.FILE, max_msg_size=MOST_VALUE_BYTES + _HEADROOM_BYTES, deny_delete=True,
        **more,
    )  # fmt: skip

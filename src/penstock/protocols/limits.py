"""The bounds that every endpoint keeps."""

from typing import Annotated

import msgspec

from .load import SHARE
from .rates import RoleRates


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The section `limits` of the configuration, each bound with its reason."""

    max_request_bytes: int = 5 * 1024 * 1024 + 256 * 1024  # one message of the largest size, and its JSON
    max_messages_per_request: int = 10_000  # a request is worked on in one go
    max_read_messages: int = 10_000  # and so is an answer
    max_read_bytes: int = 16 * 1024 * 1024
    max_wait_ms: int = 300_000  # longest poll
    max_frame_bytes: int = 7 * 1024 * 1024 + 256 * 1024  # base64 of the largest message, and its JSON
    # Pulsar's webSocketSessionIdleTimeoutMillis; pings and pongs count, also those of http.websocket_ping_s.
    websocket_idle_ms: int = 300_000
    websocket_outbox_bytes: int = 512 * 1024  # read for a socket and not written to it, as its peer is slow
    consumer_timeout_ms: int = 300_000  # a REST consumer without requests
    max_rest_consumers: int = 10_000
    binary_keep_alive_ms: int = 30_000  # Pulsar's keepAliveIntervalSeconds: then a ping, then the end
    binary_stall_ms: int = 30_000  # a client of the binary endpoint that takes nothing of what waits for it
    # From a connection's beginning until its client is admitted: a round trip or two, and a password to be checked.
    binary_connect_ms: int = 10_000
    max_properties_bytes: int = 256 * 1024  # properties of one message, topic or namespace, names and values
    # Of all endpoints together: a connection costs memory and a file, and both end.
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000  # one address cannot have all; it may be a proxy, and have many
    max_bytes_in_flight: int = 256 * 1024 * 1024  # unanswered requests, and unsent output
    # Of them, what one role may have alone, or one address without a role; always less than what others leave free
    # allows (`load`). 1: all of it.
    max_bytes_in_flight_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = SHARE
    max_headers: int = 128  # of one request; every search examines each
    head_ms: int = 20_000  # to send a request's head, a new connection's first one included
    body_ms: int = 20_000  # to send a request's body, and more for what came at `min_bytes_per_s`
    min_bytes_per_s: int = 500  # a sender, or a reader, slower than this for longer than its time is dropped
    stall_ms: int = 30_000  # for a reader to take written bytes, of HTTP and WebSocket
    # What commands of one connection of Pulsar's protocol hold until they are stored; then it is not read. Twice
    # what one producer may have waiting.
    max_connection_bytes_in_flight: int = 64 * 1024 * 1024
    # Of each role, over all endpoints together; of each address if authentication is off. 0: without bound, as
    # the right bound depends on the machine.
    max_requests_per_s: int = 0
    max_bytes_per_s: int = 0  # in both directions
    role_rates: dict[str, RoleRates] = {}  # of single roles

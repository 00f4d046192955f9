"""Limits for the number of connections, and for idle ones.

| | REST | gRPC |
|---|---|---|
| no complete head of a request `max_head_seconds` after the connection or the last answer | closed | closed |
| more than _MOST_HEAD_BYTES of a head, or around a body | closed | refused |
| an answer that the client does not take for `max_receive_seconds` | closed | cancelled (`grpc_calls`) |
| idle after an answer | 5 s, uvicorn's | `max_idle_seconds` |
| more than `max_connections` | closed at once | the excess is closed within a second |
| more than `max_address_connections` of one client address | closed at once | likewise |

gRPC accepts connections itself and has no limit per address, so they are watched from outside. Between two checks it
accepts BURST times as many: at a hard limit, one address could lock out all others.
"""

import asyncio
import collections
import contextlib
import logging
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from serving.errors import SettingsError
from serving.middleware.settings import LimitSettings

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25  # between calls of `close_excess`
BURST = 5
_MOST_HEAD_BYTES = 64 * 1024
# Besides connections: descriptors of models, logs and threads, and files that are open briefly.
_OTHER_DESCRIPTORS = 512


def reserve_descriptors(limits: LimitSettings) -> None:
    """Raise the process' limit of descriptors to the need of both ports; SettingsError if that is not allowed."""
    needed = (1 + BURST) * limits.max_connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SettingsError(
            f"{limits.max_connections} connections per port need {needed} descriptors; the limit is {hard}:"
            f" raise the limit (`ulimit -Hn`), or give --max-connections {(hard - _OTHER_DESCRIPTORS) // (1 + BURST)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Listener(socket.socket):
    """Listens, and closes excess connections at once, even in the TLS handshake; OSError: it cannot listen."""

    def __init__(self, host: str, port: int, limits: LimitSettings):
        # `::` takes IPv4, too, as gRPC's does.
        family, both = (socket.AF_INET6, socket.has_dualstack_ipv6()) if ":" in host else (socket.AF_INET, False)
        made = socket.create_server((host.strip("[]"), port), family=family, backlog=1024, dualstack_ipv6=both)
        super().__init__(made.family, made.type, made.proto, fileno=made.detach())
        # Accepted connections inherit it. asyncio sets it only on its own sockets; without it every answer on a kept
        # connection waits 40 ms for a delayed acknowledgement.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._limits = limits
        self._accepted: list[tuple[socket.socket, str]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            descriptor, address = self._accept()  # type: ignore[attr-defined]
            accepted, host = socket.socket(self.family, self.type, self.proto, fileno=descriptor), str(address[0])
            self._accepted = [(one, peer) for one, peer in self._accepted if one.fileno() >= 0]  # without closed ones
            of_host = sum(peer == host for _, peer in self._accepted)
            if len(self._accepted) < self._limits.max_connections and of_host < self._limits.max_address_connections:
                self._accepted.append((accepted, host))
                return accepted, address
            accepted.close()


def http_protocol(limits: LimitSettings) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with deadlines for request heads and for readers: it would await both forever.

    It parses with httptools, if that is installed, else with h11, which takes 0.1 ms more a request but limits heads.
    It keeps nothing to be sent but the last piece (`rest_calls`), so an answer is complete once the system has it all.
    """

    class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _overdue: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None
        _head_bytes = 0  # received, and not of a body

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            tls = getattr(transport, "_ssl_protocol", None)
            if tls is not None:  # it does not count what the transport below it has buffered
                transport = tls._transport
                pause, resume = tls.pause_writing, tls.resume_writing
                tls.pause_writing = lambda: (self.pause_writing(), pause())  # type: ignore[func-returns-value]
                tls.resume_writing = lambda: (self.resume_writing(), resume())  # type: ignore[func-returns-value]
            transport.set_write_buffer_limits(0)
            self._abort_in("_overdue", limits.max_head_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._abort_in("_overdue", None)
            super().connection_lost(exc)
            self._abort_in("_stuck", None)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._abort_in("_stuck", limits.max_receive_seconds)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._abort_in("_stuck", None)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > _MOST_HEAD_BYTES and hasattr(self, "parser"):  # httptools' has no limit
                self.transport.abort()
            if self.cycle is not None and not self.cycle.response_complete:  # the head is there
                self._abort_in("_overdue", None)

        def on_body(self, body: bytes) -> None:
            # A chunk of a byte comes with five others.
            self._head_bytes = max(0, self._head_bytes - 6 * len(body))
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._head_bytes = 0
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._abort_in("_overdue", limits.max_head_seconds)
            super().on_response_complete()
            if not self.cycle.response_complete:  # the next request has arrived already
                self._abort_in("_overdue", None)

        def _abort_in(self, timer: str, seconds: float | None) -> None:
            """Set a timer anew; None stops it."""
            if (running := getattr(self, timer)) is not None:
                running.cancel()
            started = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
            setattr(self, timer, started)

    return Protocol


def loop_with_deadline(handshake_seconds: float) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops whose servers limit TLS handshakes in time; uvicorn has no option for it."""

    class Loop(asyncio.SelectorEventLoop):
        async def create_server(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
            if options.get("ssl") is not None:
                options["ssl_handshake_timeout"] = handshake_seconds
            return await super().create_server(*args, **options)

    return Loop


def close_excess(port: int, limits: LimitSettings) -> None:
    """Close connections above the limits on a port that gRPC accepts on by itself."""
    kept: collections.Counter[str] = collections.Counter()
    closed: collections.Counter[str] = collections.Counter()
    try:
        for _, peer, connection in _sockets_of(port):
            if peer is None:
                continue
            if kept[peer] < limits.max_address_connections and kept.total() < limits.max_connections:
                kept[peer] += 1
                continue
            closed[peer] += 1
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:  # no descriptor is left
        log.error("connections of gRPC: %s", error.strerror)
    for peer, number in closed.items():
        log.warning("%s: %d connections of gRPC above the limits were closed, %d kept", peer, number, kept[peer])


def hang_up(port: int) -> None:
    """Close gRPC's listening sockets of a port, then its connections; call it before gRPC stops.

    A call that arrives once gRPC stops is CANCELLED, which clients take for their own doing. A closed connection is
    UNAVAILABLE: clients retry elsewhere. gRPC itself has no way to close one.
    """
    listening = [descriptor for descriptor, peer, _ in _sockets_of(port) if peer is None]
    # gRPC still owns its descriptor and logs an error if a listening socket is shut down: it gets an unbound one.
    with socket.socket() as unbound:
        for descriptor in listening:
            os.dup2(unbound.fileno(), descriptor, inheritable=False)
    for _, peer, duplicate in _sockets_of(port):
        if peer is not None:
            with contextlib.suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)


def _sockets_of(port: int) -> Iterator[tuple[int, str | None, socket.socket]]:
    """This process' sockets on a port: descriptors, peers (None: it listens), and duplicates that act on them."""
    for number in os.listdir("/dev/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                continue
            duplicate = socket.socket(fileno=os.dup(int(number)))
        except OSError:  # closed meanwhile
            continue
        with duplicate, contextlib.suppress(OSError):
            if duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.getsockname()[1] == port:
                listens = bool(duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                yield int(number), None if listens else str(duplicate.getpeername()[0]), duplicate

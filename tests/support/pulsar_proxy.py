"""What Pulsar's proxy does with a connection: its own CONNECT for the client's, then bytes both ways."""

import base64
import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Iterator

from penstock.wire.frames import FrameDecoder, encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnect

PIECE = 65536


def role_of(token: str) -> str:
    """The role that a token shows; a proxy would verify it."""
    claims = token.split(".")[1]
    found: str = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
    return found


@contextlib.contextmanager
def pulsar_proxy(broker: str, token: str, *, forwards: bool) -> Iterator[str]:
    """A proxy before `broker` that authenticates by `token`; `forwards` its clients' credentials. Its URL."""
    host, _, port = broker.removeprefix("pulsar://").partition(":")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client: socket.socket = self.request
            hello = self._hello(client)
            if hello is None:
                return
            shown = hello.auth_data.decode()
            hello.auth_data = token.encode()
            hello.original_principal = role_of(shown)
            if forwards:
                hello.original_auth_method, hello.original_auth_data = "token", shown
            hello.ClearField("proxy_to_broker_url")
            with socket.create_connection((host, int(port)), timeout=60) as upstream:
                upstream.sendall(encode(BaseCommand(type=BaseCommand.CONNECT, connect=hello)))
                back = threading.Thread(target=_pipe, args=(upstream, client), daemon=True)
                back.start()
                _pipe(client, upstream)
                back.join(30)

        def _hello(self, client: socket.socket) -> CommandConnect | None:
            decoder = FrameDecoder()
            while data := client.recv(PIECE):
                for frame in decoder.feed(data):
                    made = CommandConnect()
                    made.CopyFrom(frame.command.connect)
                    return made
            return None

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"pulsar://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

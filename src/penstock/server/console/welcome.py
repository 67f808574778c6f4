"""The page at `/`, for people: first steps with this server's addresses, and links."""

from html import escape
from typing import Final

from penstock import __version__
from penstock.protocols.http.exchange import Exchange

from .assets import STATIC

_PAGE: Final = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Penstock</title>
    <link rel="icon" href="{static}icon.svg" type="image/svg+xml">
    <link rel="stylesheet" href="{static}console.css">
  </head>
  <body>
    <main>
      <h1>Penstock {version}</h1>
      <p>The server runs. Publish the first message, and read it:</p>
      <pre><code>curl '{url}/topics/public/default/hello' -d '{{"messages": [{{"value": "hello, world"}}]}}'
curl '{url}/topics/public/default/hello/partitions/0/messages'</code></pre>
      <ul>
{links}
      </ul>
      <p class="dim">HTTP and WebSocket: <code>{url}</code>{pulsar}</p>
    </main>
  </body>
</html>
"""
_CONSOLE: Final = ("/console", "the console: topics, messages, subscriptions, schemas, pipelines")
_LINKS: Final = (
    ("/docs", "the HTTP interface, to read and to try"),
    ("/openapi.json", "the same for programs"),
    ("/asyncapi.json", "the WebSocket interface for programs"),
    ("/kafka", "partitions as byte ranges"),
    ("/metrics", "figures for Prometheus"),
    ("/health/ready", "whether the server takes work"),
)


def welcome(exchange: Exchange, pulsar_url: str, *, console: bool) -> bytes:
    """The page, by the address that the person came to."""
    url = exchange.address or "http://localhost"
    links = "\n".join(
        f'        <li><a href="{path}">{path}</a>: {what}</li>'
        for path, what in ((_CONSOLE, *_LINKS) if console else _LINKS)
    )
    pulsar = f" · Pulsar's clients: <code>{escape(pulsar_url)}</code>" if pulsar_url else ""
    page = _PAGE.format(
        static=STATIC, version=escape(__version__), url=escape(url), links=links, pulsar=pulsar
    )
    return page.encode(errors="replace")

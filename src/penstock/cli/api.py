"""`penstock api`: one request, for what has no command."""

import sys
from typing import Any

import click

from penstock.client.http import HttpClient

from .actions import show
from .connection import connected
from .properties import pairs_option
from .spelling import Choice


@click.command("api")
@click.argument("method", type=Choice("GET", "PUT", "POST", "DELETE", "PATCH"))
@click.argument("path")
@pairs_option("--query", "-q", help="A parameter; may be repeated.")
@click.option("--data", "-d", metavar="JSON", help="The body; - is stdin.")
@connected
def api_command(client: HttpClient, method: str, path: str, query: dict[str, str], data: str | None) -> None:
    """Send one request to PATH of the server, as /admin/v2/clusters, and print its answer."""
    if not path.startswith("/"):
        raise click.UsageError(f"{path}: a path begins with /, as /admin/v2/clusters")
    # Arguments may hold bytes that are not text: they are passed unchanged.
    text = sys.stdin.read() if data == "-" else data
    content = None if text is None else text.encode(errors="surrogateescape")
    headers: dict[str, Any] = {} if content is None else {"Content-Type": "application/json"}
    answer, _ = client.fetch(method, path, params=query, content=content, headers=headers)
    show(answer, f"{method} {path} is done", {"method": method, "path": path})

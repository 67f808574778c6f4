"""`/kafka` for people: what it is, which topics there are, and how to read and write them with curl."""

from collections.abc import Mapping
from html import escape
from typing import Final
from urllib.parse import quote

from penstock.protocols.http.answers import Answer

TOPICS_SHOWN: Final = 1000  # the rest is in /kafka/topics

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Topics as byte ranges</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ background: #8881; padding: .7rem 1rem; overflow-x: auto; border-radius: .3rem }}
li a {{ margin-left: .4rem }}
</style>
</head>
<body>
<h1>Topics as byte ranges</h1>
<p>Every partition of a topic is one resource, and its messages are a stream of bytes that only grows.
Read any range of it; write by posting to it.</p>
<pre>curl -H 'Content-Type: text/plain' -d 'this is message 1' {host}/kafka/topics/foo/0
curl -H 'Accept: text/plain' -r 0-1023 {host}/kafka/topics/foo/0
curl -H 'Accept: text/plain' -H 'Prefer: wait=10' -r 28- {host}/kafka/topics/foo/0</pre>
<p><code>Content-Range</code> says which bytes of the log an answer consumed: go on at the next.
Representations: <code>application/x-kafka</code>, <code>text/plain</code>, <code>text/json</code>,
<code>application/json</code>, <code>application/x-ndjson</code>. See also <a href="/docs">the reference</a>.</p>
<h2>Topics</h2>
{topics}
</body>
</html>
"""


def page(partitions: Mapping[str, int], host: str) -> Answer:
    """The page, with the topics and how many partitions each has."""
    rows = []
    for name, count in list(partitions.items())[:TOPICS_SHOWN]:
        path = f"/kafka/topics/{quote(name, safe='')}"
        links = "".join(f'<a href="{path}/{n}">{n}</a>' for n in range(count))
        rows.append(f'<li><a href="{path}">{escape(name)}</a>: partition{"s" * (count > 1)}{links}</li>')
    topics = f"<ul>\n{chr(10).join(rows)}\n</ul>" if rows else "<p>There are none yet.</p>"
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'",
        "vary": "Accept",
        "x-content-type-options": "nosniff",
    }
    return Answer(
        raw=_PAGE.format(host=escape(host), topics=topics).encode(errors="replace"), headers=headers
    )

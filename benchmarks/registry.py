"""The schema registry: reads by id and by subject, lookups and registrations, beside an answer that never changes.

    python -m benchmarks.registry [--seconds 2] [--rounds 5] [--peer NAME=URL ...]

A static answer is `/health/live` of the same process in the same round; rates are compared with it. Subjects have one version
each, one has a hundred of AVRO, and one a hundred of PROTOBUF. A peer is another registry with Confluent's API, which must run
already and be empty; its process ids are not known here, so that only its rates are shown.
"""

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from . import servers
from .generator import Result, Server, get, http, post, run
from .measuring import median, ratios_of

CONNECTIONS = 8
VERSIONS = 100
SUBJECTS = 100


def avro(fields: int) -> str:
    """A record with so many fields, each of which may be missing."""
    made = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(fields)]
    return json.dumps({"type": "record", "name": "R", "fields": made})


def proto(fields: int) -> str:
    """The same as Protobuf."""
    made = "".join(f"  int32 f{number} = {number + 1};\n" for number in range(fields))
    return f'syntax = "proto3";\nmessage R {{\n{made}}}\n'


def body(schema: str, kind: str = "AVRO") -> dict[str, str]:
    return {"schema": schema, "schemaType": kind}


def fill(url: str) -> None:
    """Register what the cases read."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:

        def register(subject: str, given: dict[str, str]) -> None:
            client.post(f"/subjects/{subject}/versions", json=given).raise_for_status()

        for number in range(VERSIONS):
            register("long", body(avro(number)))
            register("proto", body(proto(number + 1), "PROTOBUF"))
        for number in range(SUBJECTS):
            register(f"s{number}-value", body(json.dumps({"type": "fixed", "name": f"F{number}", "size": 4})))


def cases(prefix: str) -> dict[str, bytes]:
    """The requests by what they do; `prefix` is the path below which the registry is."""

    def given(path: str, schema: dict[str, str]) -> bytes:
        return post(prefix + path, json.dumps(schema).encode())

    return {
        "schema by id": get(f"{prefix}/schemas/ids/1"),
        "latest version": get(f"{prefix}/subjects/long/versions/latest"),
        "subjects": get(f"{prefix}/subjects"),
        "register what is there": given(
            "/subjects/s1-value/versions", body('{"type": "fixed", "name": "F1", "size": 4}')
        ),
        "look up AVRO, 100 versions": given("/subjects/long", body(avro(1))),
        "look up PROTOBUF, 100 versions": given("/subjects/proto", body(proto(1), "PROTOBUF")),
        "look up PROTOBUF otherwise written": given("/subjects/proto", body("// 1\n" + proto(1), "PROTOBUF")),
    }


def measure(contenders: Sequence[tuple[str, Server, bytes]], seconds: float, rounds: int) -> None:
    """One line for each, compared with the first."""
    found: list[list[Result]] = [[] for _ in contenders]
    for _ in range(rounds):
        for results, (_, server, request) in zip(found, contenders, strict=True):
            results.append(run(server, [http(request, connections=CONNECTIONS)], seconds, warm_s=0.2))
    for (name, _, _), results in zip(contenders, found, strict=True):
        ratios = ratios_of(results, found[0])
        print(
            f"| {name:<48} | {median(results, 'per_second'):>8,.0f}/s | {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {median(results, 'server_us'):>7.1f} µs |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL")
    given = parser.parse_args()
    with servers.penstock() as server:
        fill(f"http://127.0.0.1:{server.port}/registry")
        contenders = [("a static answer (/health/live)", server, get("/health/live"))]
        contenders += [(name, server, request) for name, request in cases("/registry").items()]
        for peer in given.peer:
            name, _, url = peer.partition("=")
            fill(url)
            at = urlsplit(url)
            # The generator reads the CPU time of a process: of this one, as those of peers are not known.
            address = Server(at.port or 80, os.getpid())
            contenders += [(f"{name}: {case}", address, request) for case, request in cases(at.path).items()]
        measure(contenders, given.seconds, given.rounds)


if __name__ == "__main__":
    main()

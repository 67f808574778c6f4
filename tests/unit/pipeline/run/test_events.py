"""Events from Spark's progress."""

from typing import Any

from penstock.pipeline.run.events import batch_event

T = "persistent://public/default/t"


def marks(**offsets: int) -> dict[str, Any]:
    return {
        "ledgers": {T: {p[1:]: 7 for p in offsets}},
        "offsets": {T: {p[1:]: n for p, n in offsets.items()}},
    }


def progress(**more: Any) -> dict[str, Any]:
    return {
        "id": "q",
        "batchId": 3,
        "durationMs": {"triggerExecution": 500},
        "sources": [
            {
                "startOffset": marks(p0=10, p1=5),
                "endOffset": marks(p0=30, p1=5),
                "latestOffset": marks(p0=33, p1=6, p2=2),
                "numInputRows": 40,
            }
        ],
        **more,
    }


def test_rows_are_counted_by_offsets_and_lag_by_heads() -> None:
    event = batch_event(progress())
    assert (event["rows"], event["rows_per_second"], event["lag"]) == (20, 40.0, 3 + 1 + 2)
    assert (event["batch"], event["batch_ms"], event["query"], event["watermark"]) == (3, 500, "q", None)


def test_the_first_batch_has_no_start() -> None:
    found = progress()
    found["sources"][0]["startOffset"] = None
    found["sources"][0]["endOffset"]["starts"] = {T: {"0": 10, "1": 5}}
    assert batch_event(found)["rows"] == 20


def test_before_spark_4_2_the_first_batch_does_not_say_where_it_begins() -> None:
    found = progress()
    found["sources"][0]["startOffset"] = None
    assert batch_event(found)["rows"] == 40, "as Spark counts them"


def test_a_batch_of_the_watermark_alone_has_no_rows() -> None:
    found = progress()
    end = marks(p0=30) | {"starts": {T: {"0": 10}}}
    found["sources"][0] |= {"startOffset": end, "endOffset": end}
    assert batch_event(found)["rows"] == 0


def test_counts_and_watermark() -> None:
    found = progress(
        eventTime={"watermark": "2026-01-31T08:00:00.000Z"},
        observedMetrics={
            "penstock": {"written": 4, "dead_letters": 2},
            "rules v": {
                "rows": 20,
                "decode drop readable": 1,
                "expectation warn is small": 5,
                "expectation dead_letter fine": 2,
                "lateness drop at": 2,
                "expectation fail sure": 0,
            },
        },
        stateOperators=[{"numRowsDroppedByWatermark": 1}],
    )
    event = batch_event(found)
    assert (event["written"], event["rejected"], event["dead_letters"], event["late_unseen"]) == (4, 5, 2, 1)
    judged = [
        (rule["kind"], rule["rule"], rule["action"], rule["passed"], rule["failed"])
        for rule in event["rules"]
    ]
    assert judged == [
        ("decode", "readable", "drop", 19, 1),
        ("expectation", "is small", "warn", 10, 5),
        ("expectation", "fine", "dead_letter", 17, 2),
        ("lateness", "at", "drop", 15, 2),
        ("expectation", "sure", "fail", 15, 0),
    ]
    assert {rule["view"] for rule in event["rules"]} == {"v"}
    assert event["watermark"] == 1769846400000


def test_other_sources_are_counted_by_spark() -> None:
    found = progress(sources=[{"startOffset": 1, "endOffset": 5, "numInputRows": 8}])
    event = batch_event(found)
    assert (event["rows"], event["lag"]) == (8, None)

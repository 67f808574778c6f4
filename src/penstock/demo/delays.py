"""Reads the flights as a Spark table and asks it who is late, and when."""

from typing import Any, Final

from penstock.model.names import TopicName

_QUERY: Final = """
SELECT f.carrier AS carrier, f.hour AS hour, count(*) AS flights, count(f.dep_delay) AS departed,
       round(avg(f.dep_delay), 1) AS delay
FROM (SELECT from_json(CAST(value AS STRING), 'carrier STRING, hour INT, dep_delay DOUBLE') AS f FROM {view})
GROUP BY f.carrier, f.hour
ORDER BY carrier, hour
"""


def delays(url: str, topic: TopicName) -> list[dict[str, Any]]:
    """Flights, those that departed, and their mean delay (minutes) per carrier and scheduled hour."""
    from penstock.pipeline.session import session

    spark = session("penstock-demo")
    try:
        table = spark.read.format("penstock").option("url", url).option("subscribe", str(topic)).load()
        table.createOrReplaceTempView("messages")
        return [row.asDict() for row in spark.sql(_QUERY.format(view="messages")).collect()]
    finally:
        spark.stop()

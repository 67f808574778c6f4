"""A driver to be killed: runs declared pipelines in one session until everything that is there is processed.

It makes the session and then waits for a line on stdin, so that a test can have it started ahead of time.

python driver.py URL MASTER together|in-turn FILE…
"""

import sys
from pathlib import Path

from penstock.pipeline.run.handle import pipeline
from penstock.pipeline.session import session
from penstock.pipeline.spec.parse import load_spec


def main(url: str, master: str, how: str, *files: str) -> None:
    spark = session("driver", master, **load_spec(Path(files[0]), url=url, master=master).spark)
    sys.stdin.readline()
    specs = [load_spec(Path(file), url=url, master=master) for file in files]
    running = [pipeline(spec, spark) for spec in specs]
    if how == "together":
        for each in running:
            each.start(once=True)
    for each in running:
        if how != "together":
            each.start(once=True)
        each.await_termination()
    for each in running:
        print(each.spec.name, each.progress["state"], each.progress.get("rows_total", 0), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What every Python process that tests start does first: Python imports this, as its folder is on PYTHONPATH.

Spark puts archives with the sources of PySpark and Py4J before the installed packages on the path of its Python
processes. They hold the same modules, but no compiled ones: each process would compile them again, in a second of CPU.
"""

import os
import sys

sys.path[:] = [path for path in sys.path if not path.endswith((f"{os.sep}pyspark.zip", "-src.zip", ".jar"))]

if "PENSTOCK_TEST_PROXY" in os.environ:
    import commit_faults

    commit_faults.install()

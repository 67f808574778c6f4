"""Topics as Spark tables. The one package that imports PySpark and Arrow."""

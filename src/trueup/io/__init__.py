"""Tables in and out: dataframes, CSV, Parquet, DuckDB, bundles on disk."""

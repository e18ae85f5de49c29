"""Readers and writers of tables: dataframes, CSV, Parquet, DuckDB, and bundles on disk."""

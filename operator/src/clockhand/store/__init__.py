"""The only place that talks to Postgres: named queries in `sql/`, migrations, and functions that take a connection."""

"""Commands for administrators: what they do needs the database, or its store, and no running server."""

"""PostgreSQL: the store for production. Its own connections, its own schema, the database's clock."""

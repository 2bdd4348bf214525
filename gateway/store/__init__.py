"""What must survive a restart, in SQLite or PostgreSQL; the only user of SQLAlchemy."""

"""The audit log in the database: rows and trees, the second device, sinks and packs."""

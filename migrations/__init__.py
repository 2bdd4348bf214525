"""Alembic migrations of the gateway database."""

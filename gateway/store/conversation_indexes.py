"""The index that counts a project's conversations among very many kept answers.

Only migrations import this, as with `audit_indexes`: an index with a condition makes a worker load
the other database's dialect.
"""

from sqlalchemy import Index, text

from gateway.store.kept_answers import kept_answers
from gateway.store.schema.owned import OWNER


_CONVERSATIONS = text("revision > 0")

CONVERSATION_INDEXES = (
    Index(
        "ix_kept_answers_conversations",
        *[kept_answers.c[column] for column in OWNER],
        sqlite_where=_CONVERSATIONS,
        postgresql_where=_CONVERSATIONS,
    ),
)

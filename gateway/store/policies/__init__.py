"""Policy documents on their way: drafts, versions, when they act, and what stops them."""

"""Policy documents on their way: drafts, versions, when they take effect, what stops them."""

"""People and roles: who may sign in, who may do what where, and why."""

"""People and roles: who may sign in, what each may do where, and why."""

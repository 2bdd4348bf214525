"""From settings to the parts of a worker; each part is built in one place."""

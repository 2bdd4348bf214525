"""Places outside that are told of records and alerts: files, syslog, web hooks."""

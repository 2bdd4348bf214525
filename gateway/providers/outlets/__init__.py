"""Where records and alerts are sent: files, syslog, web hooks."""

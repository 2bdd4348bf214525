"""Destinations for records and alerts: files, syslog, web hooks."""

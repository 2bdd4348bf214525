"""Tools for the people who run an installation: permissions, search, reports and exports."""

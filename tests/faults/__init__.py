"""Faults over real HTTP: bad input, broken upstreams, leaving callers, failing disks."""

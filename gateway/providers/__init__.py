"""The way out: one adapter per kind of upstream over the one egress client."""

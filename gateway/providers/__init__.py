"""The way out: one adapter per kind of upstream, over one egress client."""

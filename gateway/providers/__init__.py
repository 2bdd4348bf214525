"""Adapters: one per kind of upstream, all over one egress client."""

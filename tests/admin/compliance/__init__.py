"""Tests of the compliance room: custody, erasure, packs."""

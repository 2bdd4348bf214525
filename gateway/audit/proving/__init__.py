"""Proofs that a log is complete: trees, checkpoints, packs, and their verifiers."""

"""The test suite: it mirrors the packages, with contracts per port and journeys per user."""

"""The test suite: a mirror of the packages, contracts per port, journeys per user."""

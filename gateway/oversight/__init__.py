"""For the people who run an installation: what they may do, search for, and are told."""

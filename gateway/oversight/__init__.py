"""What people who look after an installation may do, look for and are told."""

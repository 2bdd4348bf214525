"""What lets somebody in: keys, passwords, short codes, and what only looks as random as they do."""

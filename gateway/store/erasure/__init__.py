"""Content destroyed because two people agreed: cases, what each folder did, related content."""

"""Files of requests, worked off line by line through the journey of any request."""

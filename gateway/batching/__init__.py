"""Files of requests, worked through line by line; each line takes the journey of any request."""

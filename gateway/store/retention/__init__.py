"""Content destroyed because its time is over: in each audit folder, once a day, and reported."""

"""From a plan to an answer: attempts, and the choice of the next one."""

"""Tests of the room of budgets and cost."""

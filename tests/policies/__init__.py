"""Tests of the pure policy package: tables for the language, properties for the decision."""

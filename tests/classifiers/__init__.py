"""Tests of the classifiers: validators, detection, extraction, inspection, complexity."""

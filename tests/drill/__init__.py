"""Faults and attacks, one script for each kind: `attempt(rng, folder)` makes one try and raises if it fails.

`python -m tests.drill --minutes 60` repeats all of them and prints a table; tests/test_drill.py makes a few
tries of each.
"""

"""Random trials of the built program, from outside: random data, random options, invariants that must always hold."""

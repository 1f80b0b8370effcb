"""Random tests of the built program from the outside: random data, random options, invariants that must always hold."""

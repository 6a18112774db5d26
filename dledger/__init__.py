"""Raft as a value machine: bytes, ticks and random numbers come in, a `Ready` goes out.

Law: nothing in this package reads a clock, a disk, a socket or a global; the same inputs give the same outputs."""

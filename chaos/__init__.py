"""Faults and the worlds they happen in: simulated disk, network, clock and groups, and the checkers that judge them."""

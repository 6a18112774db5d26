"""Measurements of production code; figures are ratios within one run wherever the machine would decide otherwise."""

"""Schemas that evolve in seeded steps, the records of each step, and a plain model of the table that they become."""

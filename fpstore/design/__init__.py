"""Designs: which sets of tables are exact for a radius, and which one to choose."""

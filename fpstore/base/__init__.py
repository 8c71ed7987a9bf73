"""The base of all other folders.

Types, widths, arrays and strings, checks of arguments, resources, threads.
"""

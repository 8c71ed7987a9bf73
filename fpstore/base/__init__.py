"""The base of all other folders: types, widths, arrays and strings, checks of arguments, resources, threads."""

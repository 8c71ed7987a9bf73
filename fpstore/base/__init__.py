"""What every other folder stands on: types, widths, arrays and strings, checks of arguments, resources, threads."""

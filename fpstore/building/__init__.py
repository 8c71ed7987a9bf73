"""From outside input to the files of a generation."""

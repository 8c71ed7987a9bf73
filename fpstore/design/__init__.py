"""Which tables answer a radius exactly, and which of them to choose."""

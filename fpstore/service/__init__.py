"""A service of stores over HTTP and RESP (``fpstore serve``)."""

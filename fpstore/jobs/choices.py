"""What can be asked of groups and deduplications, by name. It imports nothing: the command line needs it at its start."""

GROUPINGS = ("connected", "greedy")
REPRESENTATIVES = ("first", "smallest", "central")  # of the groups of a store
KEPT = (*REPRESENTATIVES, "highest")  # of the groups of a corpus, whose documents can have scores
UNKNOWN = ("keep", "drop", "refuse")  # what becomes of a document that cannot be compared

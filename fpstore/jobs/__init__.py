"""Work on a whole store or corpus: pairs, clusters, joins, deduplication, reports.

The names of the rules for groups are here.
"""

GROUPINGS = ("connected", "greedy")
REPRESENTATIVES = ("first", "smallest", "central")  # of the groups of a store
# of the groups of a corpus, whose rows may have scores
KEEP_RULES = ("longest", *REPRESENTATIVES, "highest")
SEARCHES = ("auto", "exact", "bands")
UNKNOWN = ("keep", "drop", "refuse")  # rules for a document that cannot be compared

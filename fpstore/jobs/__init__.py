"""Work on a whole store or corpus: pairs, clusters, joins, deduplication, reports.

Here is what can be asked of groups.
"""

GROUPINGS = ("connected", "greedy")
REPRESENTATIVES = ("first", "smallest", "central")  # of the groups of a store
# of the groups of a corpus, whose documents can have scores
KEEP_RULES = (*REPRESENTATIVES, "highest")
SEARCHES = ("auto", "exact", "bands")
UNKNOWN = ("keep", "drop", "refuse")  # what becomes of a document that cannot be compared

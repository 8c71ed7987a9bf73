"""Which part of the package may import which."""

# A module imports only what stands above it here; those of one line do not know each other. A
# package is one name; what its own modules import from each other must have no cycle.
LAYERS = (
    ("errors",),
    ("_kernel",),  # raises the errors
    ("start",),
    ("base",),
    ("disk", "pages"),
    ("io",),
    ("design",),
    ("format",),
    ("hashing", "query"),
    ("building",),
    ("change",),
    ("work",),
    ("care", "jobs"),
    ("calibration",),
    ("store",),
    ("lsh", "sharded"),
    ("api",),
    ("cleaning",),
    ("plans",),
    ("ray", "spark"),
    ("__init__",),
    ("adapters", "service"),
    ("cli",),
    ("__main__",),
)

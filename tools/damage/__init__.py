"""Damage one file of a store, ask the store everything, repair it, and check every answer.

Each case is a copy of a small store with one damage, in a process of its own. Every operation must
be refused with an FpstoreError or give the right answer. Faults are: a wrong answer, another
exception, a process that dies, more than 5 seconds of processor time, and a report (of verify or
repair) that is not true; where a filter is damaged, also what is refused or lost. A case follows
from the seed and its number alone: "--seed S --case K" does one again, and shows all that came of
it. Prints a report as JSON; the exit status is 1 when there was a fault.

With "--forge", a case changes one field of one metadata record, under checksums that are right. The
process may map a gigabyte more than it has. Faults are other exceptions, more memory or time, and a
process that dies; the answers are the forger's choice.
"""

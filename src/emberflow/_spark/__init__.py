"""Spark: asking what it has, launching one stage of nodes, watching it from the driver.

Who owns what:
    facts      what this session is and offers
    shipping   your function as bytes, or an error that names what cannot be sent
    hub        the driver's end of the wires to all nodes
    job        the Spark job on a thread of its own; the one place that translates Spark's errors
    attempt    one try of the gang, from its first node to the end of its last
    console    what a person sees while it runs
    task       what runs inside each Spark task
    gathering  how tasks learn from each other: at the driver, or by Spark's barrier
    rendezvous the driver's side of that: what each rank has brought, and who is missing
    meeting    what ranks bring before your function begins, and what all are told
    missing    who is named when others wait for too long
    windows    the exchanges of a stream, seen from a task
"""

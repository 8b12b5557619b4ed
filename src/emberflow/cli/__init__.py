"""The `emberflow` command line.

main       the commands and their options; imports nothing heavy, so that --help answers at once
doctor     what is wrong with this machine or cluster, one line each, with a remedy
checks     the single checks that doctor makes here
executors  what the executors of a cluster answer; runs in a process of its own
cluster    a Spark on this machine until Ctrl-C
demo       a small network, trained on such a Spark: show.py draws its pictures
"""

"""How the processes of a run talk to each other: authenticated sockets, frames, messages, outcomes.

A connection is authenticated (`handshake`, `acceptor`) before anything else is read from it. No policy here.
"""

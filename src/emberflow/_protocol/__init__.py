"""What our processes say to each other: authenticated sockets, frames, outcomes.

A connection is authenticated (`handshake`, `acceptor`) before anything else is read from it. No policy here.
"""

"""Sockets between our own processes.

Who owns what:
    handshake  proving the key, before anything else is said
    frames     JSON messages on a stream
"""

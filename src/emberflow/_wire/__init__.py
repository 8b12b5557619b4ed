"""Sockets between our own processes.

Who owns what:
    handshake  proving the key, before anything else is said
    sockets    listening, dialling, noticing that the other side is gone
    frames     JSON messages on a stream
"""

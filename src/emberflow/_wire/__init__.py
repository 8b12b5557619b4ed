"""Sockets between our own processes.

Who owns what:
    handshake  proving the key, before anything else is said
    acceptor   letting in whoever proves the key, however many others come
    sockets    listening, dialling, noticing that the other side is gone
    ports      ports of a range that nodes of one host share
    frames     JSON messages on a stream
"""

"""The client's side of the protocol without I/O: bytes in, events out; commands in, bytes out; time is passed in.

connection  the handshake, keep-alive and frames of one connection
outbox      one producer: batches in the making, entries on their way, receipts, replies, schemas being registered
inbox       one consumer: permits, entries to messages, chunks, acknowledgements, redeliveries
commands    the commands that both and the drivers send

A driver feeds what it reads, writes what it is given, and calls again at the time it is given.
"""

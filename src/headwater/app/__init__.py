"""Settings become processes: broker, compactor, gateway, supervisor, doctor and the commands that read a ledger.

Ledger, store, clock and randomness of a process are chosen here and passed down. Only this room and the commands open
stores and read the machine's clock.
"""

"""Whether a database's writer lives: the writer beats, observers judge. The result only decides when a standby tries a
takeover."""

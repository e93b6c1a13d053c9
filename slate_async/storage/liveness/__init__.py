"""Whether a database's writer lives: it says so itself, observers judge. It decides whom to ask and when to try."""

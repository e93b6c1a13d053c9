"""Whether a database's writer lives: told by itself, judged by observers. It decides whom to ask and when to try."""

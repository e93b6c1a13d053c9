"""House rules no other tool checks, as functions from the project's files to findings."""

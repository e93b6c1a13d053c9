"""Reading a database beside its writer: the tail of its log, the state made of it, and what keeps that state
from being deleted meanwhile."""

"""Reading a database beside its writer: the tail of its log, the picture made of it, and what keeps that picture
from being deleted meanwhile."""

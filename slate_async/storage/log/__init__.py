"""The log: how a write becomes durable. Two protocols over one idea: an object's name decides its place."""

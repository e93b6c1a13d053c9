"""Transactions, updates and conditional writes of several writers, with every fault; what they read and wrote is judged
by cycles."""

"""What joins two products: a database's change feed and persistent collections."""

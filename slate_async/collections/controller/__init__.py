"""The controller of a collection: takes in what is pending, compacts, publishes what holds allow, collects garbage."""

"""Maps with indexes of several writers, with every fault; at every look an index is what the rows say."""

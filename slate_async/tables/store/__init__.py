"""Where tables lie: heads in a metastore, links and blocks in an object store."""

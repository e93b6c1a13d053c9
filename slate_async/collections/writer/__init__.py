"""Writers of a collection: appends whose outcome is known, in order, in bounded memory."""

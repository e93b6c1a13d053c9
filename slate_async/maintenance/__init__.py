"""Tools for a whole database: verification, inspection, mirrors. Nothing below needs them."""

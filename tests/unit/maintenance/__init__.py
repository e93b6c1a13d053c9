"""Looking at what is stored: verification, inspection, mirrors, times."""

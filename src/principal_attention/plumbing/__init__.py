"""What every room needs and none is about: files, checked sections, random streams, processes, progress, records."""

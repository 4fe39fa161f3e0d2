"""Utilities shared by all packages: files, validated options, random streams, processes, progress, records."""

"""Copying partitions of a source into streams here, at the source's offsets."""

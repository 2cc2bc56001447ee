"""`headwater backup`: copies of an embedded cluster while it runs."""

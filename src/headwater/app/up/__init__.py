"""`headwater up`: a whole cluster on one machine."""

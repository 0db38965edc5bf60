"""`tierberg status`: what is known, judged, in words."""

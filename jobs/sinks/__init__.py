"""Tables outside of the store that published views are copied to."""

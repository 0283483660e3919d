"""Consumer groups: who is in a group, which generation it is in, and where it stands."""

"""What keeps a store small and whole: compaction, retention and vacuum."""

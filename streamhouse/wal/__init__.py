"""The write-ahead log: one stream per process, group commit, replay."""

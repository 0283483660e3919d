"""Nouns, errors and limits that every room shares; standard library only."""

"""Answers to a compliance officer's questions, read from one audit log: who saw a document, what a person was shown and
asked, why a remembered answer was served, who was refused, what was deleted, which isolation tests ran.

Each says which window and which state of the log it is about. A row is one request: its intent and its outcome.
"""

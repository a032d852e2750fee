"""Answers from sources: the generator port, its prompts, the extractive generator, and pools of servers."""

"""Answers from sources: the generator port, its prompts, the extractive generator and the SGLang client."""

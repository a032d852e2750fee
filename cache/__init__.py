"""Answers remembered per namespace, and the decision whether one may be served again."""

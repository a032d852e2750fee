"""Tables of one tenant's database that belong to the measurement of its quality; the others are in `tenancy.schema`."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, ForeignKey, Index, LargeBinary, Table

from tenancy.schema import tenant
from tenancy.types import Integer, Text

# Sets of questions with what is expected, as JSON lines.
evaluation_sets = Table(
    "evaluation_sets",
    tenant,
    Column("name", Text, primary_key=True),
    Column("saved", Float, nullable=False),
    Column("cases", JSON, nullable=False),
)

# One run of a set: `change` is the digest of the change that was tried, empty for what serves; `figures` are means,
# times and costs. No question or answer is in it.
evaluations = Table(
    "evaluations",
    tenant,
    Column("id", Text, primary_key=True),
    Column("at", Float, nullable=False),
    Column("set_name", Text, nullable=False),
    Column("change", Text, nullable=False),
    Column("questions", Integer, nullable=False),
    Column("figures", JSON, nullable=False),
    Index("evaluations_by_time", "at"),
)

# Scores of one question in one run; `question` is its keyed hash, by which runs are paired.
evaluation_scores = Table(
    "evaluation_scores",
    tenant,
    Column("evaluation_id", Text, ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True),
    Column("question", LargeBinary, primary_key=True),
    Column("scores", JSON, nullable=False),
)

# Sums over the questions of one day (UTC, days since the epoch) that were embedded with one model: `total` is the sum
# of their vectors, little-endian float32. Of fewer than `retrieval.drift.LEAST` questions nothing is written.
question_days = Table(
    "question_days",
    tenant,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("sums", JSON, nullable=False),
    Column("total", LargeBinary, nullable=False),
)

"""Tables of one tenant's database that belong to its semantic cache; the others are in `tenancy.schema`."""

from __future__ import annotations

from sqlalchemy import JSON, CheckConstraint, Column, Float, Index, LargeBinary, Table

from tenancy.schema import tenant
from tenancy.types import Integer, Text

# A template that an operator opened for semantic hits, loudly and without a certificate.
cache_openings = Table(
    "cache_openings",
    tenant,
    Column("template", Text, primary_key=True),
    Column("threshold", Float, nullable=False),
    Column("opened_by", Text, nullable=False),
    Column("opened", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

# How many semantic hits of a template were drawn and judged under one version of the ladder, `k` of `n` wrong; see
# `cache.certificate`. `began` is when this evidence began, `since` when its state last changed, `hits` how many were
# served meanwhile (counted late, so a few may be missing), `reports` how many of these their askers called wrong,
# `entries` how many stored answers the labels are about. Of the labels `spread_k` of `spread_n` are within the share of
# their answer and their asker. `upper` is the larger one of both limits. `bets` are logarithms.
# The ladder `*` stands for every version: an operator's suspension of the template.
cache_evidence = Table(
    "cache_evidence",
    tenant,
    Column("template", Text, primary_key=True),
    Column("ladder", Text, primary_key=True),
    Column("state", Text, CheckConstraint("state IN ('uncertified', 'certified', 'suspended')"), nullable=False),
    Column("why", Text, nullable=False),
    Column("began", Float, nullable=False),
    Column("since", Float, nullable=False),
    Column("n", Integer, nullable=False),
    Column("k", Integer, nullable=False),
    Column("upper", Float, nullable=False),
    Column("lower", Float, nullable=False),
    Column("missing", Integer, nullable=False),
    Column("unanswered", Integer, nullable=False),
    Column("hits", Integer, nullable=False),
    Column("reports", Integer, nullable=False),
    Column("entries", Integer, nullable=False),
    Column("spread_n", Integer, nullable=False),
    Column("spread_k", Integer, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("prior_a", Float, nullable=False),
    Column("prior_b", Float, nullable=False),
    Column("bets", JSON, nullable=False),
)

# The same within one namespace (named as the audit names it), which can only be suspended. `at` is when it was last
# labelled or served.
cache_namespaces = Table(
    "cache_namespaces",
    tenant,
    Column("template", Text, primary_key=True),
    Column("ladder", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("n", Integer, nullable=False),
    Column("k", Integer, nullable=False),
    Column("hits", Integer, nullable=False),
    Column("suspended", Float),
    Column("at", Float, nullable=False),
)

# How many labels of one stored answer, and of one asker (a keyed hash), are within its share in the evidence as it is
# now; the last of them was counted `at`.
cache_labelled = Table(
    "cache_labelled",
    tenant,
    Column("template", Text, primary_key=True),
    Column("ladder", Text, primary_key=True),
    Column("about", Text, primary_key=True),
    Column("n", Integer, nullable=False),
    Column("at", Float, nullable=False),
)

# One row a judgement, without any text; the oldest are dropped.
cache_judgements = Table(
    "cache_judgements",
    tenant,
    Column("id", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("template", Text, nullable=False),
    Column("ladder", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("purpose", Text, CheckConstraint("purpose IN ('uniform', 'probation', 'feedback')"), nullable=False),
    Column("label", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("entry", Text, nullable=False),
    Index("judgements_by_ladder", "template", "ladder", "id"),
    sqlite_autoincrement=True,
)

# Pairs of questions that must never share an answer again, as a keyed hash of both; and entries that were found wrong,
# as a keyed hash of the id (`source` is `entry`). Else `source` says who found it: `feedback`, one asker's word,
# `shadow`, the judge, or `operator`.
cache_negatives = Table(
    "cache_negatives",
    tenant,
    Column("pair", LargeBinary, primary_key=True),
    Column("at", Float, nullable=False),
    Column("source", Text, nullable=False),
)

# What askers said of their own answers, by the id of the answer's request. `reporter` is a keyed hash of the asker; the
# others are those of a semantic hit that was called wrong, `pair` as in `cache_negatives`.
cache_feedback = Table(
    "cache_feedback",
    tenant,
    Column("answer", Text, primary_key=True),
    Column("at", Float, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("reporter", LargeBinary, nullable=False),
    Column("template", Text),
    Column("ladder", Text),
    Column("pair", LargeBinary),
)

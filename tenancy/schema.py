"""Tables of the control plane and of one tenant's database (SQLAlchemy Core)."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
    false,
)

from tenancy.types import Integer, Text

control = MetaData()

tenants = Table(
    "tenants",
    control,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("status", Text, CheckConstraint("status IN ('active', 'suspended')"), nullable=False),
    Column("created", Float, nullable=False),
    Column("contract", JSON, nullable=False),
)

wrapped_keys = Table(
    "wrapped_keys",
    control,
    Column("tenant_id", Text, primary_key=True),
    Column("purpose", Text, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)

api_keys = Table(
    "api_keys",
    control,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("user_id", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("roles", JSON, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
    Column("work", Text, nullable=False, server_default="interactive"),
)

api_key_secrets = Table(
    "api_key_secrets",
    control,
    Column("key_id", Text, ForeignKey("api_keys.id", ondelete="CASCADE"), primary_key=True),
    Column("hash", LargeBinary, primary_key=True),
    Column("created", Float, nullable=False),
    Column("expires", Float),
)

deletions = Table(
    "deletions",
    control,
    Column("tenant_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("deleted", Float, nullable=False),
    Column("certificate", JSON, nullable=False),
)

# The files that were made: what stands here and is missing was lost. `generation` counts the keys that a tenant's data
# has had; each has a file of its own.
files = Table(
    "files",
    control,
    Column("owner", Text, primary_key=True),
    Column("file", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
)

# Collections at a server engine that could not be dropped when their tenant was deleted.
leftovers = Table(
    "leftovers",
    control,
    Column("physical", Text, primary_key=True),
    Column("engine", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("since", Float, nullable=False),
)

tenant = MetaData()

meta = Table("meta", tenant, Column("key", Text, primary_key=True), Column("value", JSON, nullable=False))

# One row. `acl` moves with every access list or membership change, `corpus` with every document change, `kv`
# with every deletion and revocation (so that stale KV memory of a generator is unreachable), `changes` is the
# newest `changes.seq`.
epochs = Table(
    "epochs",
    tenant,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("acl", Integer, nullable=False),
    Column("corpus", Integer, nullable=False),
    Column("kv", Integer, nullable=False),
    Column("changes", Integer, nullable=False),
)

# Which documents changed, in order: what an in-memory snapshot has to read again.
changes = Table(
    "changes",
    tenant,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("document_id", Integer, nullable=False),
)

users = Table(
    "users",
    tenant,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("disabled", Boolean, nullable=False, default=False),
)

groups = Table(
    "groups",
    tenant,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Float, nullable=False),
)

members = Table(
    "members",
    tenant,
    Column("group_id", Text, ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True),
    Column("member_kind", Text, CheckConstraint("member_kind IN ('user', 'group')"), primary_key=True),
    Column("member_id", Text, primary_key=True),
    Index("members_by_member", "member_kind", "member_id"),
)

# `ref` is the immutable id of the user or group, empty for `tenant`: a name used again is another label.
labels = Table(
    "labels",
    tenant,
    Column("id", Integer, primary_key=True),
    Column("kind", Text, CheckConstraint("kind IN ('tenant', 'user', 'group')"), nullable=False),
    Column("ref", Text, nullable=False),
    UniqueConstraint("kind", "ref"),
)

documents = Table(
    "documents",
    tenant,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("version", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("origin", Text, nullable=False),
    Column("warnings", JSON, nullable=False),
    Column("updated", Float, nullable=False),
    Index("documents_by_version", "version"),
    sqlite_autoincrement=True,
)

versions = Table(
    "versions",
    tenant,
    Column("document_id", Integer, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("version", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("retired", Float),
)

# `key` names the chunk for callers: of its content, so that it outlives edits elsewhere in the document and is the same
# on every machine; null for those written before keys. `context` (headings above, a table's header) is no part of the
# text. `place` is where a person finds its begin ("page 3"), `turns` [[offset, place], ...] what begins inside of it.
# `hidden`: it is invisible in the file.
chunks = Table(
    "chunks",
    tenant,
    Column("id", Integer, primary_key=True),
    Column("document_id", Integer, ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("heading", Text),
    Column("text", Text, nullable=False),
    Column("terms", LargeBinary, nullable=False),
    Column("key", Text),
    Column("context", Text),
    Column("place", Text),
    Column("turns", JSON(none_as_null=True)),
    Column("hidden", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("document_id", "ordinal"),
    sqlite_autoincrement=True,
)

# What became of each file or part of one that ingestion met last, also of those that gave no document, and of documents
# that were removed. `version` is that of the document.
items = Table(
    "items",
    tenant,
    Column("name", Text, primary_key=True),
    Column("origin", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text),
    Column("remedy", Text),
    Column("warnings", JSON, nullable=False),
    Column("version", Text),
    Column("seen", Float, nullable=False),
    Index("items_by_status", "status", "name"),
)

# The embedding models whose vectors this tenant holds; `spec` is how the settings name the model.
models = Table(
    "models",
    tenant,
    Column("id", Integer, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("fingerprint", JSON, nullable=False),
    Column("created", Float, nullable=False),
)

# In a table of their own, so that a tenant can hold the vectors of two models while it moves to the other, and so
# that texts and terms are read without them. Little-endian float32.
vectors = Table(
    "vectors",
    tenant,
    Column("chunk_id", Integer, ForeignKey("chunks.id", ondelete="CASCADE"), primary_key=True),
    Column("model_id", Integer, ForeignKey("models.id"), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

# Physical collections: what is searched, what is being built beside it, what is kept to return to. `engine` is the
# name of an engine of the deployment, `physical` the opaque name at it, `applied` the newest change number that it
# has acknowledged (-1: build it anew).
collections = Table(
    "collections",
    tenant,
    Column("id", Integer, primary_key=True),
    Column("engine", Text, nullable=False),
    Column("physical", Text, nullable=False, unique=True),
    Column("model_id", Integer, ForeignKey("models.id"), nullable=False),
    Column("state", Text, CheckConstraint("state IN ('building', 'serving', 'previous')"), nullable=False),
    Column("applied", Integer, nullable=False),
    Column("sealing", LargeBinary, nullable=False),
    Column("created", Float, nullable=False),
    sqlite_autoincrement=True,
)
Index(
    "one_collection_serves",
    collections.c.state,
    unique=True,
    sqlite_where=collections.c.state == "serving",
    postgresql_where=collections.c.state == "serving",
)

acl = Table(
    "acl",
    tenant,
    Column("document_id", Integer, ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    Column("label_id", Integer, ForeignKey("labels.id"), primary_key=True),
    Column("effect", Text, CheckConstraint("effect IN ('allow', 'deny')"), primary_key=True),
    Index("acl_by_label", "label_id"),
)

# LoRA adapters of this tenant. `name` is the tenant's word for it, `id` the random one that an engine sees; a changed
# adapter is a new row. `manifest` is {file: SHA-256}, `allow` the labels that may use it, null for everybody.
adapters = Table(
    "adapters",
    tenant,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("revision", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("modules", JSON, nullable=False),
    Column("manifest", JSON, nullable=False),
    Column("allow", JSON),
    Column("created", Float, nullable=False),
    Column("revoked", Float),
    Index("adapters_by_name", "name", "created"),
)

# Prompt templates of this tenant in every version; the one with the largest number holds, unless it was withdrawn.
templates = Table(
    "templates",
    tenant,
    Column("name", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("system", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("withdrawn", Float),
)

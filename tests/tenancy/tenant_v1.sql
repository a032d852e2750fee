-- A tenant's tables as version 1 made them.
CREATE TABLE cache_openings (
    template TEXT NOT NULL,
    threshold FLOAT NOT NULL,
    opened_by TEXT NOT NULL,
    opened FLOAT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (template)
);

CREATE TABLE changes (
    seq INTEGER NOT NULL,
    document_id INTEGER NOT NULL,
    PRIMARY KEY (seq)
);

CREATE TABLE documents (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    title TEXT NOT NULL,
    media_type TEXT NOT NULL,
    metadata JSON NOT NULL,
    origin TEXT NOT NULL,
    warnings JSON NOT NULL,
    updated FLOAT NOT NULL,
    UNIQUE (name)
);

CREATE TABLE epochs (
    one INTEGER NOT NULL CHECK (one = 1),
    acl INTEGER NOT NULL,
    corpus INTEGER NOT NULL,
    kv INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    PRIMARY KEY (one)
);

CREATE TABLE groups (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created FLOAT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE labels (
    id INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('tenant', 'user', 'group')),
    ref TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (kind, ref)
);

CREATE TABLE meta (
    "key" TEXT NOT NULL,
    value JSON NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE users (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created FLOAT NOT NULL,
    disabled BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE versions (
    document_id INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    version TEXT NOT NULL,
    document TEXT NOT NULL,
    chunks INTEGER NOT NULL,
    created FLOAT NOT NULL,
    retired FLOAT,
    PRIMARY KEY (document_id, ordinal)
);

CREATE TABLE acl (
    document_id INTEGER NOT NULL,
    label_id INTEGER NOT NULL,
    effect TEXT NOT NULL CHECK (effect IN ('allow', 'deny')),
    PRIMARY KEY (document_id, label_id, effect),
    FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE,
    FOREIGN KEY(label_id) REFERENCES labels (id)
);

CREATE INDEX acl_by_label ON acl (label_id);

CREATE TABLE chunks (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    document_id INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    heading TEXT,
    text TEXT NOT NULL,
    vector BLOB NOT NULL,
    terms BLOB NOT NULL,
    UNIQUE (document_id, ordinal),
    FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);

CREATE TABLE members (
    group_id TEXT NOT NULL,
    member_kind TEXT NOT NULL CHECK (member_kind IN ('user', 'group')),
    member_id TEXT NOT NULL,
    PRIMARY KEY (group_id, member_kind, member_id),
    FOREIGN KEY(group_id) REFERENCES groups (id) ON DELETE CASCADE
);

CREATE INDEX members_by_member ON members (member_kind, member_id);

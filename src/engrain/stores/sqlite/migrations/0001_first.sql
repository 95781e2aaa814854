-- The first schema. Times are microseconds since 1970, UTC. Numbers (n) are the store's own and never leave it.

create table meta (name text primary key, value any) strict, without rowid;

-- One row: the newest change, the newest time recorded, and how often the log was started anew.
create table counter (n integer primary key, seq integer not null, now integer not null, logs integer not null) strict;

create table scope (n integer primary key, id text not null unique, tenant text, agent text, user text) strict;

-- Long columns stand last: a scan over the short ones then never walks an overflow chain.
create table item (
  n integer primary key autoincrement,
  id text not null unique,
  scope integer not null references scope (n),
  changed integer not null,
  kind text not null,
  importance real not null,
  trust real not null,
  pinned integer not null default 0,
  traits integer not null default 0,
  passages integer not null default 1,
  occurred_at integer,
  recorded_at integer not null,
  valid_from integer not null,
  valid_to integer,
  retracted_at integer,
  expires_at integer,
  place integer,
  session text,
  speaker text,
  role text,
  slot text,
  access_count integer not null default 0,
  last_accessed integer,
  replaced_by text,
  hash blob not null,
  subject text,
  relation text,
  object text,
  metadata text not null default '{}',
  text text not null
) strict;

create index item_changed on item (scope, changed);
create index item_scope on item (scope);
create index item_traits on item (scope, n) where traits <> 0;
create index item_slot on item (scope, slot, valid_from) where slot is not null;
create index item_corrected on item (replaced_by) where retracted_at is not null;
create unique index item_open_slot on item (scope, slot)
  where slot is not null and valid_to is null and retracted_at is null;
create unique index item_open_hash on item (scope, hash)
  where slot is null and occurred_at is null and session is null and valid_to is null and retracted_at is null;
create unique index item_place on item (scope, session, place) where session is not null and retracted_at is null;

-- Where an item came from, in the order the sources were added.
create table source (
  item integer not null references item (n) on delete cascade,
  number integer not null,
  kind text not null,
  name text,
  primary key (item, number)
) strict, without rowid;
create index source_name on source (name) where name is not null;

-- `item` rests on the span of `cited`, by its source of that number; both ends null means all of it.
create table cite (
  item integer not null references item (n) on delete cascade,
  number integer not null,
  cited integer not null references item (n) on delete cascade,
  start integer,
  "end" integer
) strict;
create index cite_item on cite (item);
create index cite_cited on cite (cited);

-- The casefolded names on either side of a relation: SQLite folds the case of ASCII only.
create table entity (
  scope integer not null,
  name text not null,
  item integer not null references item (n) on delete cascade,
  primary key (scope, name, item)
) strict, without rowid;
create index entity_item on entity (item);

-- Little-endian uint32 pairs (term, passage << 16 | count).
create table words (item integer primary key references item (n) on delete cascade, pairs blob not null) strict;

create table model (n integer primary key, key text not null unique, dimension integer not null) strict;

-- The vectors of an item, all windows in one row. key = model << 40 | item: a rowid holds a wide row without overflow
-- pages, and the rows of a model lie together in the order of the items.

-- What the scan reads: per window its scale and the length of what rounding cut off (float32 each), then int8 codes.
create table code (key integer primary key, windows blob not null) strict;

-- What the re-scoring reads: per window the vector itself, float32.
create table vector (key integer primary key, windows blob not null) strict;

-- Items that were removed, so that readers of the change sequence learn of it. No content.
create table gone (seq integer primary key, scope integer not null, n integer not null, id text not null) strict;
create index gone_scope on gone (scope, seq);

-- Keyed hashes of forgotten texts: what was forgotten is not derived again.
create table tombstone (scope integer not null, hash blob not null, at integer not null, primary key (scope, hash))
  strict, without rowid;

create table request (
  scope integer not null, id text not null, answer text not null, at integer not null, primary key (scope, id)
) strict, without rowid;

create table session (
  scope integer not null,
  session text not null,
  length integer not null default 0,
  changed integer not null default 0,
  upto integer,
  version integer not null default 0,
  summary text,
  primary key (scope, session)
) strict, without rowid;

-- How far each outside index has read the change sequence.
create table target (name text primary key, seq integer not null) strict, without rowid;

-- The key of every hash.
insert into meta (name, value) values ('key', randomblob(32));
insert into counter (n, seq, now, logs) values (1, 0, 0, 0);

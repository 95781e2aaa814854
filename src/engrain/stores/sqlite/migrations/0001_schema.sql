-- Times are microseconds since 1970, UTC. Numbers (n, scope) are the store's own and never leave it.
-- Every row has a checksum of its other columns (see checksums.py). All have the same width, the default too, so that one
-- is written over the other where it stands.
-- Tables and columns have the names of the Postgres schema. Long columns stand last: a scan over the short ones then
-- never walks an overflow chain.

create table meta (name text primary key, checksum integer not null default 1099511627776, value any) strict, without rowid;

-- Row 0: the newest change, the newest time recorded, how often the write-ahead log was restarted, the number of commits,
-- and the digest of all rows that belong to no scope. A row for each scope, by its number: the digest of its rows, which
-- is the sum of their checksums. In one table, so that a commit writes one page less.
create table counter (
  n integer primary key,
  checksum integer not null default 1099511627776,
  change integer not null default 0,
  now integer not null default 0,
  logs integer not null default 0,
  commits integer not null default 0,
  digest integer not null default 0
) strict;

-- State: 0 open; 1 being erased; 2 hidden by a hold; 3 erased, a row without names, so that its number is never reused.
-- A scope that is not open has a keyed hash for its id, so that no reader finds it.
create table scope (
  scope integer primary key,
  checksum integer not null default 1099511627776,
  id text not null unique,
  tenant text,
  agent text,
  user text,
  state integer not null default 0
) strict;

create table item (
  n integer primary key autoincrement,
  checksum integer not null default 1099511627776,
  id text not null unique,
  scope integer not null references scope (scope),
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

create unique index item_number on item (scope, n);
create index item_changed on item (scope, changed);
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
  scope integer not null,
  checksum integer not null default 1099511627776,
  item integer not null,
  number integer not null,
  kind text not null,
  name text,
  primary key (scope, item, number),
  foreign key (scope, item) references item (scope, n) on delete cascade
) strict, without rowid;

create index source_name on source (scope, name) where name is not null;

-- `item` rests on the span of `cited`, by its source of that number. A span without ends is the whole text.
create table citation (
  n integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null,
  item integer not null,
  number integer not null,
  cited integer not null,
  span_start integer,
  span_end integer,
  foreign key (scope, item) references item (scope, n) on delete cascade,
  foreign key (scope, cited) references item (scope, n) on delete cascade
) strict;

create index citation_item on citation (scope, item);
create index citation_cited on citation (scope, cited);

-- The casefolded names on either side of a relation: SQLite folds the case of ASCII only.
create table entity (
  scope integer not null,
  checksum integer not null default 1099511627776,
  name text not null,
  item integer not null references item (n) on delete cascade,
  primary key (scope, name, item)
) strict, without rowid;

-- By the item alone, here and for episodes: with the scope in front SQLite would take the primary key, and read all of
-- the scope for one item.
create index entity_item on entity (item);

-- Little-endian uint32 pairs (term, passage << 16 | count).
create table words (
  item integer primary key references item (n) on delete cascade,
  checksum integer not null default 1099511627776,
  pairs blob not null
) strict;

create table model (
  n integer primary key,
  checksum integer not null default 1099511627776,
  key text not null unique,
  dimension integer not null
) strict;

-- The vectors of an item, all windows in one row. key = model << 40 | item: a rowid holds a wide row without overflow
-- pages, and the rows of a model lie together in the order of the items.

-- For the scan: per window its scale and the length of what rounding cut off (float32 each), then int8 codes.
create table code (
  key integer primary key,
  checksum integer not null default 1099511627776,
  windows blob not null
) strict;

-- For the re-scoring: per window the vector itself, float32.
create table vector (
  key integer primary key,
  checksum integer not null default 1099511627776,
  windows blob not null
) strict;

-- Items that were removed, so that readers of the change sequence learn of it. No content.
create table deleted_item (
  change integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null,
  n integer not null,
  id text not null
) strict;

create index deleted_item_scope on deleted_item (scope, change);

-- Keyed hashes of forgotten texts: a forgotten text is not derived again.
create table tombstone (
  scope integer not null,
  checksum integer not null default 1099511627776,
  hash blob not null,
  at integer not null,
  primary key (scope, hash)
) strict, without rowid;

create table request (
  scope integer not null,
  checksum integer not null default 1099511627776,
  id text not null,
  answer text not null,
  at integer not null,
  primary key (scope, id)
) strict, without rowid;

-- `episodes` counts them: to count a thousand for every new one would take longer than to write it.
create table session (
  scope integer not null,
  checksum integer not null default 1099511627776,
  session text not null,
  length integer not null default 0,
  changed integer not null default 0,
  episodes integer not null default 0,
  primary key (scope, session)
) strict, without rowid;

-- Apart from its session, whose row is written with every message.
create table summary (
  scope integer not null,
  checksum integer not null default 1099511627776,
  session text not null,
  upto integer not null,
  version integer not null,
  made_by text not null,
  text text not null,
  primary key (scope, session)
) strict, without rowid;

-- How far some work on a session has come.
create table progress (
  scope integer not null,
  checksum integer not null default 1099511627776,
  session text not null,
  work text not null,
  upto integer not null,
  primary key (scope, session, work)
) strict, without rowid;

-- How far each outside index has read the change sequence.
create table outbox_reader (
  name text primary key,
  checksum integer not null default 1099511627776,
  change integer not null
) strict, without rowid;

-- An episode over a log row goes with it. Without a rowid, because one is written with every message of a chat, and each
-- tree less is a page less in the commit.
create table episode (
  scope integer not null references scope (scope),
  checksum integer not null default 1099511627776,
  happened_at integer not null,
  id text not null,
  item integer references item (n) on delete cascade,
  expires_at integer,
  count integer not null,
  importance real not null,
  session text not null,
  kind text not null,
  key text,
  data text not null,
  text text not null,
  primary key (scope, happened_at, id)
) strict, without rowid;

create unique index episode_id on episode (scope, id);
-- With the expiry, so that expired ones are passed over without reading them.
create index episode_session on episode (scope, session, happened_at, id, expires_at);
create index episode_key on episode (scope, session, key) where key is not null;
create index episode_item on episode (item) where item is not null;
create index episode_expires on episode (expires_at) where expires_at is not null;

create trigger episode_added after insert on episode begin
  insert into session (scope, session, episodes) values (new.scope, new.session, 1)
  on conflict (scope, session) do update set episodes = episodes + 1; end;

create trigger episode_deleted after delete on episode begin
  update session set episodes = episodes - 1 where scope = old.scope and session = old.session; end;

-- The whole text that an episode shows in short.
create table raw_text (
  n integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null,
  id text not null,
  expires_at integer not null,
  text text not null,
  unique (scope, id),
  foreign key (scope, id) references episode (scope, id) on delete cascade
) strict;

create index raw_text_expires on raw_text (expires_at);

-- `item` is a version of a procedure.
create table trial (
  scope integer not null,
  checksum integer not null default 1099511627776,
  item integer not null,
  task text not null,
  at integer not null,
  success integer not null,
  note text not null,
  primary key (scope, item, task),
  foreign key (scope, item) references item (scope, n) on delete cascade
) strict, without rowid;

-- Durable tasks: who runs them, what is recorded of each step, and what was kept or delivered meanwhile.
-- A clock is a moment of the machine's steady clock, "boot:microseconds": it judges leases whatever the wall clock does.
create table task (
  n integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null references scope (scope),
  epoch integer not null,
  started_at integer not null,
  lease_until integer,
  ended_at integer,
  deadline integer,
  status text not null,
  task text not null,
  worker text,
  deadline_clock text,
  lease_clock text,
  ended_clock text,
  version text not null,
  goal text not null,
  outcome text not null default '',
  unique (scope, task)
) strict;

create unique index task_number on task (scope, n);
create index task_open on task (lease_until) where lease_until is not null;

-- Large results, once each however many steps returned them.
create table large_result (
  n integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null,
  hash blob not null,
  body text not null,
  unique (scope, hash)
) strict;

-- Rows lie in the order in which the steps first began.
create table step (
  n integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null,
  task integer not null,
  occurrence integer not null,
  attempt integer not null,
  epoch integer not null,
  started_at integer not null,
  ended_at integer,
  kind text not null,
  status text not null,
  name text not null,
  input text not null,
  key text not null,
  version text not null,
  large_result integer references large_result (n),
  error text,
  result text,
  unique (scope, task, name, occurrence),
  foreign key (scope, task) references task (scope, n) on delete cascade
) strict;

create index step_large_result on step (large_result) where large_result is not null;

-- Apart from its task, whose row is written with every sign of life.
create table snapshot (
  scope integer not null,
  checksum integer not null default 1099511627776,
  task integer not null,
  body text not null,
  primary key (scope, task),
  foreign key (scope, task) references task (scope, n) on delete cascade
) strict;

create table event (
  scope integer not null,
  checksum integer not null default 1099511627776,
  task text not null,
  event text not null,
  at integer not null,
  payload text not null,
  primary key (scope, task, event)
) strict, without rowid;

-- Opaque bodies of frameworks. `changed` is the order of writing, and `hash` the SHA-256 of the body.
create table record (
  n integer primary key,
  checksum integer not null default 1099511627776,
  scope integer not null references scope (scope),
  changed integer not null,
  at integer not null,
  expires_at integer,
  space text not null,
  key text not null,
  hash blob not null,
  body blob not null
) strict;

create unique index record_key on record (scope, space, key);
create index record_expires on record (expires_at) where expires_at is not null;

-- Its chain of hashes finds damage, so that it needs no checksums.
create table audit (
  n integer primary key,
  at integer not null,
  what text not null,
  subject text,
  details text not null,
  previous text not null,
  hash text not null
) strict;

create table hold (
  subject_hash text primary key,
  checksum integer not null default 1099511627776,
  at integer not null,
  reason text not null,
  hidden integer not null default 0
) strict, without rowid;

-- An erasure in progress. Its names go with the last row that they name.
create table erasure (
  n integer primary key,
  checksum integer not null default 1099511627776,
  id text not null unique,
  subject_hash text not null,
  subject_kind text not null,
  stage text not null,
  at integer not null,
  tenant text,
  agent text,
  user text,
  name text,
  scopes text not null default '[]',
  counts text not null default '{}',
  ids text not null default '[]',
  notes text not null default '{}',
  fingerprints blob not null default x''
) strict;

create table erasure_receipt (
  subject_hash text primary key,
  checksum integer not null default 1099511627776,
  subject_kind text not null,
  at integer not null,
  receipt text not null
) strict, without rowid;

-- The key of every hash.
insert into meta (name, value) values ('key', lower(hex(randomblob(32))));
insert into counter (n) values (0);

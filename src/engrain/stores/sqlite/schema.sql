-- What the migrations make, in one piece. A test keeps it so.

CREATE TABLE audit (
  n integer primary key,
  at integer not null,
  what text not null,
  subject text,
  details text not null,
  previous text not null,
  hash text not null
) strict;

CREATE TABLE cite (
  item integer not null references item (n) on delete cascade,
  number integer not null,
  cited integer not null references item (n) on delete cascade,
  start integer,
  "end" integer
) strict;

CREATE INDEX cite_item on cite (item);

CREATE INDEX cite_cited on cite (cited);

CREATE TABLE code (key integer primary key, windows blob not null) strict;

CREATE TABLE counter (n integer primary key, seq integer not null, now integer not null, logs integer not null) strict;

CREATE TABLE entity (
  scope integer not null,
  name text not null,
  item integer not null references item (n) on delete cascade,
  primary key (scope, name, item)
) strict, without rowid;

CREATE INDEX entity_item on entity (item);

CREATE TABLE episode (
  scope integer not null references scope (n),
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

CREATE UNIQUE INDEX episode_id on episode (scope, id);

CREATE INDEX episode_session on episode (scope, session, happened_at, id, expires_at);

CREATE INDEX episode_key on episode (scope, session, key) where key is not null;

CREATE INDEX episode_item on episode (item) where item is not null;

CREATE INDEX episode_expires on episode (expires_at) where expires_at is not null;

CREATE TRIGGER episode_came after insert on episode begin
  insert into session (scope, session, episodes) values (new.scope, new.session, 1)
  on conflict (scope, session) do update set episodes = episodes + 1; end;

CREATE TRIGGER episode_went after delete on episode begin
  update session set episodes = episodes - 1 where scope = old.scope and session = old.session; end;

CREATE TABLE erased (mark text primary key, "by" text not null, at integer not null, receipt text not null)
  strict, without rowid;

CREATE TABLE erasing (
  n integer primary key,
  id text not null unique,
  mark text not null,
  "by" text not null,
  stage text not null,
  at integer not null,
  tenant text,
  agent text,
  user text,
  name text,
  counts text not null default '{}',
  ids text not null default '[]',
  notes text not null default '{}',
  prints blob not null default x''
) strict;

CREATE TABLE event (
  scope integer not null, task text not null, event text not null, at integer not null, payload text not null,
  primary key (scope, task, event)
) strict, without rowid;

CREATE TABLE gone (seq integer primary key, scope integer not null, n integer not null, id text not null) strict;

CREATE INDEX gone_scope on gone (scope, seq);

CREATE TABLE hold (mark text primary key, at integer not null, reason text not null, hidden integer not null default 0)
  strict, without rowid;

CREATE TABLE item (
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

CREATE INDEX item_changed on item (scope, changed);

CREATE INDEX item_scope on item (scope);

CREATE INDEX item_traits on item (scope, n) where traits <> 0;

CREATE INDEX item_slot on item (scope, slot, valid_from) where slot is not null;

CREATE INDEX item_corrected on item (replaced_by) where retracted_at is not null;

CREATE UNIQUE INDEX item_open_slot on item (scope, slot)
  where slot is not null and valid_to is null and retracted_at is null;

CREATE UNIQUE INDEX item_open_hash on item (scope, hash)
  where slot is null and occurred_at is null and session is null and valid_to is null and retracted_at is null;

CREATE UNIQUE INDEX item_place on item (scope, session, place) where session is not null and retracted_at is null;

CREATE TABLE meta (name text primary key, value any) strict, without rowid;

CREATE TABLE model (n integer primary key, key text not null unique, dimension integer not null) strict;

CREATE TABLE progress (
  scope integer not null,
  session text not null,
  work text not null,
  upto integer not null,
  primary key (scope, session, work)
) strict, without rowid;

CREATE TABLE raw (
  n integer primary key,
  scope integer not null,
  id text not null,
  expires_at integer not null,
  text text not null,
  unique (scope, id),
  foreign key (scope, id) references episode (scope, id) on delete cascade
) strict;

CREATE INDEX raw_expires on raw (expires_at);

CREATE TABLE request (
  scope integer not null, id text not null, answer text not null, at integer not null, primary key (scope, id)
) strict, without rowid;

CREATE TABLE result (
  n integer primary key, scope integer not null, hash blob not null, body text not null, unique (scope, hash)
) strict;

CREATE TABLE scope (n integer primary key, id text not null unique, tenant text, agent text, user text, shut integer not null default 0) strict;

CREATE TABLE session (
  scope integer not null,
  session text not null,
  length integer not null default 0,
  changed integer not null default 0, episodes integer not null default 0,
  primary key (scope, session)
) strict, without rowid;

CREATE TABLE snapshot (task integer primary key references task (n) on delete cascade, body text not null) strict;

CREATE TABLE source (
  item integer not null references item (n) on delete cascade,
  number integer not null,
  kind text not null,
  name text,
  primary key (item, number)
) strict, without rowid;

CREATE INDEX source_name on source (name) where name is not null;

CREATE TABLE step (
  n integer primary key,
  task integer not null references task (n) on delete cascade,
  occurrence integer not null,
  attempt integer not null,
  epoch integer not null,
  began_at integer not null,
  ended_at integer,
  kind text not null,
  status text not null,
  name text not null,
  input text not null,
  key text not null,
  version text not null,
  large integer references result (n),
  error text,
  result text
) strict;

CREATE UNIQUE INDEX step_name on step (task, name, occurrence);

CREATE INDEX step_large on step (large) where large is not null;

CREATE TABLE summary (
  scope integer not null,
  session text not null,
  upto integer not null,
  version integer not null,
  "by" text not null,
  text text not null,
  primary key (scope, session)
) strict, without rowid;

CREATE TABLE target (name text primary key, seq integer not null) strict, without rowid;

CREATE TABLE task (
  n integer primary key,
  scope integer not null references scope (n),
  epoch integer not null,
  started_at integer not null,
  until integer,
  ended_at integer,
  deadline integer,
  status text not null,
  task text not null,
  worker text,
  deadline_mark text,
  until_mark text,
  ended_mark text,
  version text not null,
  goal text not null,
  outcome text not null default '',
  unique (scope, task)
) strict;

CREATE INDEX task_open on task (until) where until is not null;

CREATE TABLE tombstone (scope integer not null, hash blob not null, at integer not null, primary key (scope, hash))
  strict, without rowid;

CREATE TABLE trial (
  item integer not null references item (n) on delete cascade,
  task text not null,
  at integer not null,
  success integer not null,
  note text not null,
  primary key (item, task)
) strict, without rowid;

CREATE TABLE vector (key integer primary key, windows blob not null) strict;

CREATE TABLE words (item integer primary key references item (n) on delete cascade, pairs blob not null) strict;

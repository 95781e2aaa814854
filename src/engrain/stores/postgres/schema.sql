-- What the migrations make. A test compares the two.

create sequence change;

create sequence clock;

create table audit (
  n bigint not null,
  at bigint not null,
  what text collate "C" not null,
  subject text collate "C",
  details text collate "C" not null,
  previous text collate "C" not null,
  hash text collate "C" not null,
  PRIMARY KEY (n)
);

create table cite (
  n bigint not null generated always as identity,
  scope uuid not null,
  item bigint not null,
  cited bigint not null,
  number integer not null,
  "from" integer,
  "to" integer,
  FOREIGN KEY (cited) REFERENCES item(n) ON DELETE CASCADE,
  FOREIGN KEY (item) REFERENCES item(n) ON DELETE CASCADE,
  PRIMARY KEY (n)
);

create table embedded (
  scope uuid not null,
  model integer not null,
  count bigint not null,
  PRIMARY KEY (scope, model)
);

create table embedding (
  scope uuid not null,
  item bigint not null,
  model integer not null,
  number integer not null,
  vector vector not null,
  PRIMARY KEY (scope, model, item, number)
);

create table entity (
  scope uuid not null,
  name text collate "C" not null,
  item bigint not null,
  FOREIGN KEY (item) REFERENCES item(n) ON DELETE CASCADE,
  PRIMARY KEY (scope, name, item)
);

create table episode (
  scope uuid not null,
  happened_at bigint not null,
  expires_at bigint,
  raw_until bigint,
  importance double precision not null,
  count integer not null,
  id text collate "C" not null,
  session text collate "C" not null,
  kind text collate "C" not null,
  item text collate "C",
  key text collate "C",
  text text collate "C" not null,
  data text collate "C" not null,
  raw text collate "C",
  PRIMARY KEY (scope, id)
);

create table erased (
  mark text collate "C" not null,
  made_by text collate "C" not null,
  at bigint not null,
  receipt text collate "C" not null,
  PRIMARY KEY (mark)
);

create table erasing (
  n bigint not null generated always as identity,
  id text collate "C" not null,
  mark text collate "C" not null,
  made_by text collate "C" not null,
  stage text collate "C" not null,
  at bigint not null,
  tenant text collate "C",
  agent text collate "C",
  "user" text collate "C",
  name text collate "C",
  scopes text collate "C" not null default '[]'::text,
  counts text collate "C" not null default '{}'::text,
  ids text collate "C" not null default '[]'::text,
  notes text collate "C" not null default '{}'::text,
  prints bytea not null default '\x'::bytea,
  UNIQUE (id),
  PRIMARY KEY (n)
);

create table event (
  scope uuid not null,
  task text collate "C" not null,
  event text collate "C" not null,
  at bigint not null,
  payload text collate "C" not null,
  PRIMARY KEY (scope, task, event)
);

create table gone (
  seq bigint not null,
  scope uuid not null,
  id text collate "C" not null,
  PRIMARY KEY (seq)
);

create table hold (
  mark text collate "C" not null,
  at bigint not null,
  reason text collate "C" not null,
  hidden boolean not null default false,
  PRIMARY KEY (mark)
);

create table item (
  n bigint not null generated always as identity,
  scope uuid not null,
  changed bigint not null,
  occurred_at bigint,
  recorded_at bigint not null,
  valid_from bigint not null,
  valid_to bigint,
  retracted_at bigint,
  expires_at bigint,
  last_accessed bigint,
  place bigint,
  importance double precision not null,
  trust double precision not null,
  traits bigint not null default 0,
  access_count bigint not null default 0,
  passages integer not null default 1,
  words integer not null default 0,
  pinned boolean not null default false,
  id text collate "C" not null,
  kind text collate "C" not null,
  session text collate "C",
  speaker text collate "C",
  role text collate "C",
  slot text collate "C",
  replaced_by text collate "C",
  hash bytea not null,
  subject text collate "C",
  relation text collate "C",
  object text collate "C",
  metadata text collate "C" not null default '{}'::text,
  filters jsonb,
  text text collate "C" not null,
  PRIMARY KEY (n)
);

create table meta (
  name text not null,
  value text not null,
  PRIMARY KEY (name)
);

create table model (
  n integer not null generated always as identity,
  key text collate "C" not null,
  dimension integer not null,
  UNIQUE (key),
  PRIMARY KEY (n)
);

create table progress (
  scope uuid not null,
  session text collate "C" not null,
  work text collate "C" not null,
  upto bigint not null,
  PRIMARY KEY (scope, session, work)
);

create table request (
  scope uuid not null,
  id text collate "C" not null,
  at bigint not null,
  answer text not null,
  PRIMARY KEY (scope, id)
);

create table scope (
  id uuid not null,
  seq bigint not null default 0,
  tenant text collate "C",
  agent text collate "C",
  "user" text collate "C",
  shut smallint not null default 0,
  PRIMARY KEY (id)
);

create table session (
  scope uuid not null,
  session text collate "C" not null,
  length bigint not null default 0,
  changed bigint not null default 0,
  upto bigint,
  version integer not null default 0,
  made_by text collate "C" not null default ''::text,
  summary text collate "C",
  PRIMARY KEY (scope, session)
);

create table snapshot (
  task bigint not null,
  scope uuid not null,
  body text collate "C" not null,
  PRIMARY KEY (task),
  FOREIGN KEY (task) REFERENCES task(n) ON DELETE CASCADE
);

create table source (
  scope uuid not null,
  item bigint not null,
  number integer not null,
  kind text collate "C" not null,
  name text collate "C",
  FOREIGN KEY (item) REFERENCES item(n) ON DELETE CASCADE,
  PRIMARY KEY (item, number)
);

create table step (
  n bigint not null generated always as identity,
  scope uuid not null,
  task bigint not null,
  began_at bigint not null,
  ended_at bigint,
  occurrence integer not null,
  attempt integer not null,
  epoch integer not null,
  kind text collate "C" not null,
  status text collate "C" not null,
  name text collate "C" not null,
  input text collate "C" not null,
  key text collate "C" not null,
  version text collate "C" not null,
  error text collate "C",
  result text collate "C",
  PRIMARY KEY (n),
  FOREIGN KEY (task) REFERENCES task(n) ON DELETE CASCADE,
  UNIQUE (task, name, occurrence)
);

create table sweep (
  after xid8 not null
);

create table target (
  name text collate "C" not null,
  seq bigint not null,
  PRIMARY KEY (name)
);

create table task (
  n bigint not null generated always as identity,
  scope uuid not null,
  epoch integer not null,
  started_at bigint not null,
  until bigint,
  until_mark bigint,
  ended_at bigint,
  deadline bigint,
  status text collate "C" not null,
  task text collate "C" not null,
  worker text collate "C",
  version text collate "C" not null,
  goal text collate "C" not null,
  outcome text collate "C" not null default ''::text,
  PRIMARY KEY (n),
  UNIQUE (scope, task)
);

create table tombstone (
  scope uuid not null,
  hash bytea not null,
  at bigint not null,
  PRIMARY KEY (scope, hash)
);

create table trial (
  scope uuid not null,
  at bigint not null,
  success boolean not null,
  procedure text collate "C" not null,
  task text collate "C" not null,
  note text collate "C" not null,
  PRIMARY KEY (scope, procedure, task)
);

create table word (
  scope uuid not null,
  item bigint not null,
  term integer not null,
  passage integer not null,
  length integer not null,
  count integer not null
);

CREATE INDEX cite_cited ON cite USING btree (cited);
CREATE INDEX cite_item ON cite USING btree (item);
CREATE INDEX embedding_item ON embedding USING btree (item);
CREATE INDEX entity_item ON entity USING btree (item);
CREATE INDEX episode_expires ON episode USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX episode_item ON episode USING btree (scope, item) WHERE (item IS NOT NULL);
CREATE INDEX episode_key ON episode USING btree (scope, session, key) WHERE (key IS NOT NULL);
CREATE INDEX episode_raw ON episode USING btree (raw_until) WHERE (raw_until IS NOT NULL);
CREATE INDEX episode_recent ON episode USING btree (scope, happened_at, id);
CREATE INDEX episode_session ON episode USING btree (scope, session, happened_at, id);
CREATE INDEX gone_scope ON gone USING btree (scope, seq);
CREATE INDEX item_anywhere ON item USING btree (id);
CREATE INDEX item_census ON item USING btree (scope) INCLUDE (n, valid_from, valid_to, expires_at, retracted_at, passages, words);
CREATE INDEX item_changed ON item USING btree (scope, changed);
CREATE INDEX item_changed_anywhere ON item USING btree (changed);
CREATE INDEX item_corrected ON item USING btree (scope, replaced_by) WHERE (retracted_at IS NOT NULL);
CREATE UNIQUE INDEX item_id ON item USING btree (scope, id);
CREATE UNIQUE INDEX item_open_hash ON item USING btree (scope, hash) WHERE ((slot IS NULL) AND (occurred_at IS NULL) AND (session IS NULL) AND (valid_to IS NULL) AND (retracted_at IS NULL));
CREATE UNIQUE INDEX item_open_slot ON item USING btree (scope, slot) WHERE ((slot IS NOT NULL) AND (valid_to IS NULL) AND (retracted_at IS NULL));
CREATE UNIQUE INDEX item_place ON item USING btree (scope, session, place) WHERE ((session IS NOT NULL) AND (retracted_at IS NULL));
CREATE INDEX item_session ON item USING btree (scope, session, place) WHERE (session IS NOT NULL);
CREATE INDEX item_slot ON item USING btree (scope, slot, valid_from) WHERE (slot IS NOT NULL);
CREATE INDEX item_speaker ON item USING btree (scope, speaker) WHERE (speaker IS NOT NULL);
CREATE INDEX item_traits ON item USING btree (scope, id) WHERE (traits <> 0);
CREATE INDEX session_changed ON session USING btree (changed);
CREATE INDEX task_due ON task USING btree (deadline) WHERE ((ended_at IS NULL) AND (deadline IS NOT NULL));
CREATE INDEX task_ended ON task USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX task_open ON task USING btree (until) WHERE (until IS NOT NULL);
CREATE INDEX word_item ON word USING btree (item);
CREATE INDEX word_term ON word USING btree (scope, term);

create function adopt(new uuid, old uuid) returns void as $$
declare
  upkeep text := coalesce(current_setting('engrain.upkeep', true), '');
begin
  perform set_config('engrain.upkeep', 'on', true);
  update tombstone set scope = new where scope = old;
  update gone set scope = new where scope = old;
  perform set_config('engrain.upkeep', upkeep, true);
end
$$;

create function is_open(shut smallint) returns boolean as $$
begin
  if shut = 1 then
    raise exception 'being erased' using errcode = 'ENG02';
  elsif shut = 2 then
    raise exception 'on hold' using errcode = 'ENG03';
  end if;
  return true;
end
$$;

create function open_change() returns void as $$
select pg_advisory_xact_lock_shared(
    hashtext(current_schema() || '.change'), (case when is_called then last_value % 2147483648 else 0 end)::integer)
  from change
$$;

create function refuse_shut() returns trigger as $$
declare
  upkeep text := coalesce(current_setting('engrain.upkeep', true), '');
  found smallint;
begin
  perform set_config('engrain.upkeep', 'on', true);
  select max(shut) into found from scope
  where tenant is not distinct from new.tenant and "user" = new."user" and shut > 0 and id <> new.id;
  perform set_config('engrain.upkeep', upkeep, true);
  perform is_open(coalesce(found, 0::smallint));
  return new;
end
$$;

create function refuse_task() returns trigger as $$
begin
  perform is_open(shut) from scope where id = new.scope;
  return new;
end
$$;

create function settled_change() returns bigint as $$
declare
  newest bigint;
  lowest bigint;
begin
  select case when is_called then last_value else 0 end into newest from change;
  select min(newest - ((newest - objid::bigint) % 2147483648 + 2147483648) % 2147483648) into lowest
  from pg_locks
  where locktype = 'advisory' and objsubid = 2
    and database = (select oid from pg_database where datname = current_database())
    and classid::bigint = (hashtext(current_schema() || '.change')::bigint & 4294967295);
  return least(newest, lowest);
end
$$;

create function tick(asked bigint) returns bigint as $$
declare
  moment bigint := coalesce(asked, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
  newest bigint;
begin
  select last_value into newest from clock;
  if moment <= newest then
    return newest;
  end if;
  begin
    -- A rollback releases the lock and leaves the sequence as it is: so the lock is held for these lines alone, and no
    -- cancelled statement leaves it behind on a pooled connection.
    perform pg_advisory_xact_lock(hashtext(current_schema()), hashtext('clock'));
    select greatest(last_value, moment) into moment from clock;
    perform setval('clock', moment);
    raise exception using errcode = 'ENG01';
  exception when sqlstate 'ENG01' then
    null;
  end;
  return moment;
end
$$;

-- Policy own of scope:
-- (id = ( select (nullif(current_setting('engrain.scope'::text, true), ''::text))::uuid as "nullif"))

-- Policy own of cite, embedded, embedding, entity, episode, event, gone, item, progress, request, session, snapshot, source, step, task, tombstone, trial, word:
-- (scope = ( select (nullif(current_setting('engrain.scope'::text, true), ''::text))::uuid as "nullif"))

-- Policy upkeep of cite, embedded, embedding, entity, episode, event, gone, item, progress, request, scope, session, snapshot, source, step, task, tombstone, trial, word:
-- ( select (current_setting('engrain.upkeep'::text, true) = 'on'::text))

-- Times are whole microseconds since 1970. Texts compare by code point. Every row of a memory names its scope.

create sequence change;

-- The newest time that was recorded; not a row, because every writer would wait for it until the other's commit.
create sequence clock minvalue 0 start 0;

create table meta (name text primary key, value text not null);

create table scope (
  id uuid primary key,
  seq bigint not null default 0,
  tenant text collate "C",
  agent text collate "C",
  "user" text collate "C"
) with (fillfactor = 70);

create table item (
  n bigint generated always as identity primary key,
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
  -- As it was given, and once more with every number spelled out exactly, for filters.
  metadata text collate "C" not null default '{}',
  filters jsonb,
  text text collate "C" not null
) with (fillfactor = 90);

create unique index item_id on item (scope, id);
-- All that a census of a scope needs: it is taken from the index alone.
create index item_census on item (scope) include (n, valid_from, valid_to, expires_at, retracted_at, passages, words);
create index item_changed on item (scope, changed);
create index item_changed_anywhere on item (changed);
create index item_traits on item (scope, id) where traits <> 0;
create index item_slot on item (scope, slot, valid_from) where slot is not null;
create index item_speaker on item (scope, speaker) where speaker is not null;
create index item_corrected on item (scope, replaced_by) where retracted_at is not null;
create unique index item_open_slot on item (scope, slot)
  where slot is not null and valid_to is null and retracted_at is null;
create unique index item_open_hash on item (scope, hash)
  where slot is null and occurred_at is null and session is null and valid_to is null and retracted_at is null;
create unique index item_place on item (scope, session, place) where session is not null and retracted_at is null;
create index item_session on item (scope, session, place) where session is not null;

create table source (
  scope uuid not null,
  item bigint not null references item (n) on delete cascade,
  number integer not null,
  kind text collate "C" not null,
  name text collate "C",
  primary key (item, number)
);

create table cite (
  n bigint generated always as identity primary key,
  scope uuid not null,
  item bigint not null references item (n) on delete cascade,
  cited bigint not null references item (n) on delete cascade,
  number integer not null,
  "from" integer,
  "to" integer
);

create index cite_item on cite (item);
create index cite_cited on cite (cited);

create table entity (
  scope uuid not null,
  name text collate "C" not null,
  item bigint not null references item (n) on delete cascade,
  primary key (scope, name, item)
);

create index entity_item on entity (item);

create table session (
  scope uuid not null,
  session text collate "C" not null,
  length bigint not null default 0,
  changed bigint not null default 0,
  upto bigint,
  version integer not null default 0,
  made_by text collate "C" not null default '',
  summary text collate "C",
  primary key (scope, session)
) with (fillfactor = 80);

create index session_changed on session (changed);

-- How far some work on a session has come.
create table progress (
  scope uuid not null,
  session text collate "C" not null,
  work text collate "C" not null,
  upto bigint not null,
  primary key (scope, session, work)
);

create table request (
  scope uuid not null,
  id text collate "C" not null,
  at bigint not null,
  answer text not null,
  primary key (scope, id)
);

create table tombstone (scope uuid not null, hash bytea not null, at bigint not null, primary key (scope, hash));

create table gone (seq bigint primary key, scope uuid not null, id text collate "C" not null);

create index gone_scope on gone (scope, seq);

create table target (name text collate "C" primary key, seq bigint not null);

-- Transactions that removed something whose bytes are still to be swept out.
create table sweep (after xid8 not null);

-- One row for each different word of a passage; `length` is that of the passage.
create table word (
  scope uuid not null,
  item bigint not null,
  term integer not null,
  passage integer not null,
  length integer not null,
  count integer not null
);

create index word_term on word (scope, term);
create index word_item on word (item);

create table model (
  n integer generated always as identity primary key,
  key text collate "C" not null unique,
  dimension integer not null
);

create table embedding (
  scope uuid not null,
  item bigint not null,
  model integer not null,
  number integer not null,
  vector vector not null,
  primary key (scope, model, item, number)
);

-- Beside the row as long as it fits into a page: a search reads all of a scope's.
alter table embedding alter column vector set storage main;

create index embedding_item on embedding (item);

create table embedded (
  scope uuid not null, model integer not null, count bigint not null, primary key (scope, model)
) with (fillfactor = 70);

-- The time to record, never before one that was recorded; with null, by the server's clock.
create function tick(asked bigint) returns bigint language plpgsql as $$
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
end $$;

-- Called before a transaction takes its first number: all that it may take are above the newest of now.
create function open_change() returns void language sql as $$
  select pg_advisory_xact_lock_shared(
    hashtext(current_schema() || '.change'), (case when is_called then last_value % 2147483648 else 0 end)::integer)
  from change
$$;

-- No open transaction has a number up to this one. The newest number is read first: who takes one later, takes a higher.
create function settled_change() returns bigint language plpgsql as $$
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
end $$;

-- The wall. It holds for the owner of the tables too. Upkeep (what is still to embed, what is to hand out, counts)
-- looks through all scopes; where one role must never do that, drop the policy `upkeep` and let another role do it.
-- A setting is read in a query of its own, once for a statement: without that, once for every row (1.8 µs each).
do $$
declare
  name text;
begin
  foreach name in array array[
    'item', 'source', 'cite', 'entity', 'session', 'progress', 'request', 'tombstone', 'gone', 'word', 'embedding',
    'embedded'
  ] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy own on %I using (scope = (select nullif(current_setting(''engrain.scope'', true), '''')::uuid))', name);
    execute format('create policy upkeep on %I using ((select current_setting(''engrain.upkeep'', true) = ''on''))', name);
  end loop;
end $$;

alter table scope enable row level security;
alter table scope force row level security;
create policy own on scope using (id = (select nullif(current_setting('engrain.scope', true), '')::uuid));
create policy upkeep on scope using ((select current_setting('engrain.upkeep', true) = 'on'));

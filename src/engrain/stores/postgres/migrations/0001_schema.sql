-- Times are whole microseconds since 1970. Texts compare by code point. Every row of a memory names its scope.
-- Every primary key, unique index and foreign key of such a table begins with the scope: see deploy/citus.sql.

create sequence change;

-- The newest time that was recorded; not a row, because every writer would wait for it until the other's commit.
create sequence clock minvalue 0 start 0;

create table meta (name text primary key, value text not null);

-- State: 0 open; 1 being erased; 2 hidden by a hold.
create table scope (
  scope uuid primary key,
  last_change bigint not null default 0,
  tenant text collate "C",
  agent text collate "C",
  "user" text collate "C",
  state smallint not null default 0
) with (fillfactor = 70);

create table item (
  n bigint generated always as identity,
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
  text text collate "C" not null,
  primary key (scope, n)
) with (fillfactor = 90);

create unique index item_id on item (scope, id);
-- Items of all scopes in the order of their ids: a copy reads them page by page.
create index item_anywhere on item (id);
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

-- Where an item came from, in the order the sources were added.
create table source (
  scope uuid not null,
  item bigint not null,
  number integer not null,
  kind text collate "C" not null,
  name text collate "C",
  primary key (scope, item, number),
  foreign key (scope, item) references item (scope, n) on delete cascade
);

-- `item` rests on the span of `cited`, by its source of that number. A span without ends is the whole text.
create table citation (
  n bigint generated always as identity,
  scope uuid not null,
  item bigint not null,
  cited bigint not null,
  number integer not null,
  span_start integer,
  span_end integer,
  primary key (scope, n),
  foreign key (scope, item) references item (scope, n) on delete cascade,
  foreign key (scope, cited) references item (scope, n) on delete cascade
);

create index citation_item on citation (scope, item);
create index citation_cited on citation (scope, cited);

create table entity (
  scope uuid not null,
  name text collate "C" not null,
  item bigint not null,
  primary key (scope, name, item),
  foreign key (scope, item) references item (scope, n) on delete cascade
);

create index entity_item on entity (scope, item);

create table session (
  scope uuid not null,
  session text collate "C" not null,
  length bigint not null default 0,
  changed bigint not null default 0,
  primary key (scope, session)
) with (fillfactor = 80);

create index session_changed on session (changed);

create table summary (
  scope uuid not null,
  session text collate "C" not null,
  upto bigint not null,
  version integer not null,
  made_by text collate "C" not null,
  text text collate "C" not null,
  primary key (scope, session)
) with (fillfactor = 80);

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

-- Keyed hashes of forgotten texts: a forgotten text is not derived again.
create table tombstone (scope uuid not null, hash bytea not null, at bigint not null, primary key (scope, hash));

-- Items that were removed, so that readers of the change sequence learn of it. No content.
create table deleted_item (
  scope uuid not null,
  change bigint not null,
  n bigint not null,
  id text collate "C" not null,
  primary key (scope, change)
);

create index deleted_item_anywhere on deleted_item (change);

-- How far each outside index has read the change sequence.
create table outbox_reader (name text collate "C" primary key, change bigint not null);

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
create index word_item on word (scope, item);

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
  primary key (scope, item, model, number)
);

-- Beside the row as long as it fits into a page: a search reads all of a scope's.
alter table embedding alter column vector set storage main;

create table embedded (
  scope uuid not null, model integer not null, count bigint not null, primary key (scope, model)
) with (fillfactor = 70);

create table episode (
  scope uuid not null,
  happened_at bigint not null,
  expires_at bigint,
  item bigint,
  importance double precision not null,
  count integer not null,
  id text collate "C" not null,
  session text collate "C" not null,
  kind text collate "C" not null,
  key text collate "C",
  text text collate "C" not null,
  data text collate "C" not null,
  primary key (scope, id),
  foreign key (scope, item) references item (scope, n) on delete cascade
);

create index episode_recent on episode (scope, happened_at, id);
create index episode_session on episode (scope, session, happened_at, id);
create index episode_key on episode (scope, session, key) where key is not null;
create index episode_item on episode (scope, item) where item is not null;
create index episode_expires on episode (expires_at) where expires_at is not null;

-- The whole text that an episode shows in short.
create table raw_text (
  scope uuid not null,
  id text collate "C" not null,
  expires_at bigint not null,
  text text collate "C" not null,
  primary key (scope, id),
  foreign key (scope, id) references episode (scope, id) on delete cascade
);

create index raw_text_expires on raw_text (expires_at);

-- `item` is a version of a procedure.
create table trial (
  scope uuid not null,
  item bigint not null,
  at bigint not null,
  success boolean not null,
  task text collate "C" not null,
  note text collate "C" not null,
  primary key (scope, item, task),
  foreign key (scope, item) references item (scope, n) on delete cascade
);

-- Durable tasks: who runs them, what is recorded of each step, and what was kept or delivered meanwhile.
-- A clock is a moment of the server's own clock. It judges a lease where times that never run backwards stand still.
create table task (
  n bigint generated always as identity,
  scope uuid not null,
  epoch integer not null,
  started_at bigint not null,
  lease_until bigint,
  lease_clock bigint,
  ended_at bigint,
  ended_clock bigint,
  deadline bigint,
  deadline_clock bigint,
  status text collate "C" not null,
  task text collate "C" not null,
  worker text collate "C",
  version text collate "C" not null,
  goal text collate "C" not null,
  outcome text collate "C" not null default '',
  primary key (scope, n),
  unique (scope, task)
) with (fillfactor = 80);

create index task_open on task (lease_until) where lease_until is not null;
create index task_due on task (deadline) where ended_at is null and deadline is not null;
create index task_ended on task (ended_at) where ended_at is not null;

-- Large results, once each however many steps returned them.
create table large_result (
  n bigint generated always as identity,
  scope uuid not null,
  hash bytea not null,
  body text collate "C" not null,
  primary key (scope, n),
  unique (scope, hash)
);

create table step (
  n bigint generated always as identity,
  scope uuid not null,
  task bigint not null,
  large_result bigint,
  started_at bigint not null,
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
  primary key (scope, n),
  unique (scope, task, name, occurrence),
  foreign key (scope, task) references task (scope, n) on delete cascade,
  foreign key (scope, large_result) references large_result (scope, n)
);

create index step_large_result on step (scope, large_result) where large_result is not null;

-- Apart from its task, whose row is written with every sign of life.
create table snapshot (
  scope uuid not null,
  task bigint not null,
  body text collate "C" not null,
  primary key (scope, task),
  foreign key (scope, task) references task (scope, n) on delete cascade
);

create table event (
  scope uuid not null,
  task text collate "C" not null,
  event text collate "C" not null,
  at bigint not null,
  payload text collate "C" not null,
  primary key (scope, task, event)
);

-- Opaque bodies of frameworks. `changed` is the order of writing, and `hash` the SHA-256 of the body.
create table record (
  scope uuid not null,
  changed bigint not null,
  at bigint not null,
  expires_at bigint,
  space text collate "C" not null,
  key text collate "C" not null,
  hash bytea not null,
  body bytea not null,
  primary key (scope, space, key)
);

create index record_expires on record (expires_at) where expires_at is not null;

create table audit (
  n bigint primary key,
  at bigint not null,
  what text collate "C" not null,
  subject text collate "C",
  details text collate "C" not null,
  previous text collate "C" not null,
  hash text collate "C" not null
);

create table hold (
  subject_hash text collate "C" primary key, at bigint not null, reason text collate "C" not null,
  hidden boolean not null default false
);

-- An erasure in progress. Its names go with the last row that they name.
create table erasure (
  n bigint generated always as identity primary key,
  id text collate "C" not null unique,
  subject_hash text collate "C" not null,
  subject_kind text collate "C" not null,
  stage text collate "C" not null,
  at bigint not null,
  tenant text collate "C",
  agent text collate "C",
  "user" text collate "C",
  name text collate "C",
  scopes text collate "C" not null default '[]',
  counts text collate "C" not null default '{}',
  ids text collate "C" not null default '[]',
  notes text collate "C" not null default '{}',
  fingerprints bytea not null default ''
);

create table erasure_receipt (
  subject_hash text collate "C" primary key, subject_kind text collate "C" not null, at bigint not null,
  receipt text collate "C" not null
);

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

-- Raise an error if a scope takes no writes, so that whoever locks it to write hears of it.
create function is_open(state smallint) returns boolean language plpgsql as $$
begin
  if state = 1 then
    raise exception 'being erased' using errcode = 'ENG02';
  elsif state = 2 then
    raise exception 'on hold' using errcode = 'ENG03';
  end if;
  return true;
end $$;

-- Refuse a new scope of a user whose other scopes are blocked, seen through the wall.
create function refuse_blocked() returns trigger language plpgsql as $$
declare
  maintenance text := coalesce(current_setting('engrain.maintenance', true), '');
  found smallint;
begin
  perform set_config('engrain.maintenance', 'on', true);
  select max(state) into found from scope
  where tenant is not distinct from new.tenant and "user" = new."user" and state > 0 and scope <> new.scope;
  perform set_config('engrain.maintenance', maintenance, true);
  perform is_open(coalesce(found, 0::smallint));
  return new;
end $$;

create trigger refuse_blocked before insert on scope for each row when (new."user" is not null and new.state = 0)
  execute function refuse_blocked();

-- Tasks and events are written without the lock of their scope.
create function refuse_task() returns trigger language plpgsql as $$
begin
  perform is_open(state) from scope where scope.scope = new.scope;
  return new;
end $$;

create trigger refuse_task before insert on task for each row execute function refuse_task();
create trigger refuse_task before insert on event for each row execute function refuse_task();

-- An erased scope leaves its tombstones and deletions under another key, which a new scope of the same name takes over.
-- Copied and deleted, because Citus updates no distribution column.
create function adopt(new uuid, old uuid) returns void language plpgsql as $$
declare
  maintenance text := coalesce(current_setting('engrain.maintenance', true), '');
begin
  perform set_config('engrain.maintenance', 'on', true);
  insert into tombstone (scope, hash, at) select new, hash, at from tombstone where scope = old on conflict do nothing;
  delete from tombstone where scope = old;
  insert into deleted_item (scope, change, n, id) select new, change, n, id from deleted_item where scope = old;
  delete from deleted_item where scope = old;
  perform set_config('engrain.maintenance', maintenance, true);
end $$;

-- Every table with rows of a scope. Those that others point to come first, and of these the ones that point to none.
create function scope_tables() returns table (relname name, id oid, place bigint) language sql stable as $$
  select relname, pg_class.oid, row_number() over (
    order by exists (select 1 from pg_constraint where confrelid = pg_class.oid) desc,
      exists (select 1 from pg_constraint where conrelid = pg_class.oid and contype = 'f'))
  from pg_class join pg_attribute on attrelid = pg_class.oid
  where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and relkind in ('r', 'p')
    and attname = 'scope' and atttypid = 'uuid'::regtype and not attisdropped and relname <> 'scope'
$$;

-- Give all rows of a scope another key, except the scope's own. Copied and deleted, as in adopt.
create function move_rows(old uuid, new uuid) returns void language plpgsql as $$
declare
  held record;
begin
  for held in
    select relname, (select string_agg(quote_ident(attname), ', ') from pg_attribute
      where attrelid = id and attnum > 0 and not attisdropped and attname <> 'scope') as columns
    from scope_tables() order by place
  loop
    execute format('insert into %1$I (scope, %2$s) overriding system value select $1, %2$s from %1$I where scope = $2 %3$s',
      held.relname, held.columns, case held.relname when 'tombstone' then 'on conflict do nothing' else '' end)
    using new, old;
  end loop;
  for held in select relname from scope_tables() order by place desc loop
    execute format('delete from %I where scope = $1', held.relname) using old;
  end loop;
end $$;

-- Hide a scope under another key, or show it again. Its state lets rows pass the triggers until all are there.
create function move_scope(old uuid, new uuid, becomes smallint) returns void language plpgsql as $$
begin
  insert into scope (scope, last_change, tenant, agent, "user", state)
  select new, last_change, tenant, agent, "user", -1 from scope where scope = old;
  perform move_rows(old, new);
  delete from scope where scope = old;
  update scope set state = becomes where scope = new;
end $$;

-- Delete the names of a scope. Rows that were written under its own key meanwhile go along to where nobody finds them.
create function anonymize_scope(key uuid, own uuid, hidden uuid) returns void language plpgsql as $$
begin
  perform move_rows(own, hidden);
  delete from scope where scope = key;
end $$;

-- The wall. It holds for the owner of the tables too. Maintenance (what is still to embed, what is to hand out, counts)
-- looks through all scopes; where one role must never do that, drop the policy `maintenance` and let another role do it.
-- A setting is read in a query of its own, once for a statement: without that, once for every row (1.8 µs each).
do $$
declare
  name text;
begin
  for name in
    select relname from pg_class join pg_attribute on attrelid = pg_class.oid
    where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and relkind = 'r'
      and attname = 'scope'
  loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy own on %I using (scope = (select nullif(current_setting(''engrain.scope'', true), '''')::uuid))', name);
    execute format('create policy maintenance on %I using ((select current_setting(''engrain.maintenance'', true) = ''on''))', name);
  end loop;
end $$;

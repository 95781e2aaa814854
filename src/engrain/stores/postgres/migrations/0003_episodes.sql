-- What happened in sessions, and how procedures turned out.

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
  primary key (scope, id)
);

create index episode_recent on episode (scope, happened_at, id);
create index episode_session on episode (scope, session, happened_at, id);
create index episode_key on episode (scope, session, key) where key is not null;
create index episode_item on episode (scope, item) where item is not null;
create index episode_expires on episode (expires_at) where expires_at is not null;
create index episode_raw on episode (raw_until) where raw_until is not null;

create table trial (
  scope uuid not null,
  at bigint not null,
  success boolean not null,
  procedure text collate "C" not null,
  task text collate "C" not null,
  note text collate "C" not null,
  primary key (scope, procedure, task)
);

do $$
declare
  name text;
begin
  foreach name in array array['episode', 'trial'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy own on %I using (scope = (select nullif(current_setting(''engrain.scope'', true), '''')::uuid))', name);
    execute format('create policy upkeep on %I using ((select current_setting(''engrain.upkeep'', true) = ''on''))', name);
  end loop;
end $$;

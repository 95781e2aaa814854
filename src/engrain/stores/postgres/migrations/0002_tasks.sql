-- Durable tasks: who runs what, what is recorded of each step, and what was kept or delivered meanwhile.

-- A mark is a moment of the server's own clock. It judges a lease where times that never run backwards stand still.
create table task (
  n bigint generated always as identity primary key,
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
  outcome text collate "C" not null default '',
  unique (scope, task)
) with (fillfactor = 80);

create index task_open on task (until) where until is not null;
create index task_due on task (deadline) where ended_at is null and deadline is not null;
create index task_ended on task (ended_at) where ended_at is not null;

create table step (
  n bigint generated always as identity primary key,
  scope uuid not null,
  task bigint not null references task (n) on delete cascade,
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
  unique (task, name, occurrence)
);

create table snapshot (
  task bigint primary key references task (n) on delete cascade,
  scope uuid not null,
  body text collate "C" not null
);

create table event (
  scope uuid not null,
  task text collate "C" not null,
  event text collate "C" not null,
  at bigint not null,
  payload text collate "C" not null,
  primary key (scope, task, event)
);

do $$
declare
  name text;
begin
  foreach name in array array['task', 'step', 'snapshot', 'event'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy own on %I using (scope = (select nullif(current_setting(''engrain.scope'', true), '''')::uuid))', name);
    execute format('create policy upkeep on %I using ((select current_setting(''engrain.upkeep'', true) = ''on''))', name);
  end loop;
end $$;

-- Durable tasks: who runs what, what is recorded of each step, and what was kept or delivered meanwhile.

-- A mark is a moment of the machine's steady clock, "boot:microseconds"; it judges leases whatever the wall clock does.
create table task (
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
create index task_open on task (until) where until is not null;

-- Rows lie in the order in which the steps first began. Long columns stand last.
create table step (
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
create unique index step_name on step (task, name, occurrence);
create index step_large on step (large) where large is not null;

-- Large results, once each however many steps returned them.
create table result (
  n integer primary key, scope integer not null, hash blob not null, body text not null, unique (scope, hash)
) strict;

-- Apart from its task, whose row is written with every sign of life.
create table snapshot (task integer primary key references task (n) on delete cascade, body text not null) strict;

create table event (
  scope integer not null, task text not null, event text not null, at integer not null, payload text not null,
  primary key (scope, task, event)
) strict, without rowid;

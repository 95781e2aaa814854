-- Erasure that can be shown: who is shut out or held, what is under way, what was erased, and the record of it.

-- 0 open; 1 is being erased; 2 hidden by a hold; 3 erased: a row without names, so that its number is never used again.
-- One that is not open has a keyed hash for its id, and so no reader finds it.
alter table scope add column shut integer not null default 0;

create table audit (
  n integer primary key,
  at integer not null,
  what text not null,
  subject text,
  details text not null,
  previous text not null,
  hash text not null
) strict;

create table hold (mark text primary key, at integer not null, reason text not null, hidden integer not null default 0)
  strict, without rowid;

-- An erasure that is under way. Its names go with the last row that they name.
create table erasing (
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

create table erased (mark text primary key, "by" text not null, at integer not null, receipt text not null)
  strict, without rowid;

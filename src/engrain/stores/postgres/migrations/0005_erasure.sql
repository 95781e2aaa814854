-- Erasure that can be shown: who is shut out or held, what is under way, what was erased, and the record of it.

-- 0 open; 1 is being erased; 2 hidden by a hold.
alter table scope add column shut smallint not null default 0;

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
  mark text collate "C" primary key, at bigint not null, reason text collate "C" not null,
  hidden boolean not null default false
);

-- An erasure that is under way. Its names go with the last row that they name.
create table erasing (
  n bigint generated always as identity primary key,
  id text collate "C" not null unique,
  mark text collate "C" not null,
  made_by text collate "C" not null,
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
  prints bytea not null default ''
);

create table erased (
  mark text collate "C" primary key, made_by text collate "C" not null, at bigint not null,
  receipt text collate "C" not null
);

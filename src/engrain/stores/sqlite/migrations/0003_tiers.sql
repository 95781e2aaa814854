-- Episodes over the log, how procedures turned out, and how far work on a session has come.

-- One over a log row goes with it. Without a rowid, because one is written with every message of a chat, and each tree
-- less is a page less in the commit. Long columns stand last.
create table episode (
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
create unique index episode_id on episode (scope, id);
-- With the expiry, so that what has expired is passed over without reading it.
create index episode_session on episode (scope, session, happened_at, id, expires_at);
create index episode_key on episode (scope, session, key) where key is not null;
create index episode_item on episode (item) where item is not null;
create index episode_expires on episode (expires_at) where expires_at is not null;

-- What an episode shows in short, as it was.
create table raw (
  n integer primary key,
  scope integer not null,
  id text not null,
  expires_at integer not null,
  text text not null,
  unique (scope, id),
  foreign key (scope, id) references episode (scope, id) on delete cascade
) strict;
create index raw_expires on raw (expires_at);

-- In the session's own row, a summary was written anew with every message. `by` says who made it.
create table summary (
  scope integer not null,
  session text not null,
  upto integer not null,
  version integer not null,
  "by" text not null,
  text text not null,
  primary key (scope, session)
) strict, without rowid;
insert into summary (scope, session, upto, version, "by", text)
  select scope, session, upto, version, '', summary from session where summary is not null;
alter table session drop column summary;
alter table session drop column version;
alter table session drop column upto;

-- How many there are of a session: to count a thousand for every one that comes would take longer than to write it.
alter table session add column episodes integer not null default 0;
create trigger episode_came after insert on episode begin
  insert into session (scope, session, episodes) values (new.scope, new.session, 1)
  on conflict (scope, session) do update set episodes = episodes + 1; end;
create trigger episode_went after delete on episode begin
  update session set episodes = episodes - 1 where scope = old.scope and session = old.session; end;

-- `item` is a version of a procedure.
create table trial (
  item integer not null references item (n) on delete cascade,
  task text not null,
  at integer not null,
  success integer not null,
  note text not null,
  primary key (item, task)
) strict, without rowid;

create table progress (
  scope integer not null,
  session text not null,
  work text not null,
  upto integer not null,
  primary key (scope, session, work)
) strict, without rowid;

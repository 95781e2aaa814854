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

-- An error if a scope takes nothing in, so that whoever locks it to write hears of it.
create function is_open(shut smallint) returns boolean language plpgsql as $$
begin
  if shut = 1 then
    raise exception 'being erased' using errcode = 'ENG02';
  elsif shut = 2 then
    raise exception 'on hold' using errcode = 'ENG03';
  end if;
  return true;
end $$;

-- A new scope of a user whose others are shut, seen through the wall.
create function refuse_shut() returns trigger language plpgsql as $$
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
end $$;

create trigger refuse_shut before insert on scope for each row when (new."user" is not null and new.shut = 0)
  execute function refuse_shut();

-- Tasks and events are written without the lock of their scope.
create function refuse_task() returns trigger language plpgsql as $$
begin
  perform is_open(shut) from scope where id = new.scope;
  return new;
end $$;

create trigger refuse_task before insert on task for each row execute function refuse_task();
create trigger refuse_task before insert on event for each row execute function refuse_task();

-- What was erased leaves its tombstones and what is gone under another name, which a new scope takes over.
create function adopt(new uuid, old uuid) returns void language plpgsql as $$
declare
  upkeep text := coalesce(current_setting('engrain.upkeep', true), '');
begin
  perform set_config('engrain.upkeep', 'on', true);
  update tombstone set scope = new where scope = old;
  update gone set scope = new where scope = old;
  perform set_config('engrain.upkeep', upkeep, true);
end $$;

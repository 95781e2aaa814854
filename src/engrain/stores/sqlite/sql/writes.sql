-- add_item --
-- Its number is chosen before, because the checksum covers it.
insert into item (
  n, id, scope, changed, kind, importance, trust, pinned, traits, passages, occurred_at, recorded_at, valid_from,
  valid_to, retracted_at, expires_at, place, session, speaker, role, slot, access_count, last_accessed, replaced_by,
  hash, subject, relation, object, metadata, text, checksum
) values (
  :n, :id, :scope, :changed, :kind, :importance, :trust, :pinned, :traits, :passages, :occurred_at, :recorded_at,
  :valid_from, :valid_to, :retracted_at, :expires_at, :place, :session, :speaker, :role, :slot, :access_count,
  :last_accessed, :replaced_by, :hash, :subject, :relation, :object, :metadata, :text, :checksum
);

-- add_source --
insert into source (scope, item, number, kind, name, checksum)
values (:scope, :item, :number, :kind, :name, :checksum);

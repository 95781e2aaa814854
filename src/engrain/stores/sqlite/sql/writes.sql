-- add_item --
-- Its number is chosen before, because the checksum covers it.
insert into item (
  n, checksum, id, scope, changed, kind, importance, trust, pinned, traits, passages, occurred_at, recorded_at,
  valid_from, valid_to, expires_at, place, session, speaker, role, slot, replaced_by, hash, subject, relation, object,
  metadata, text
) values (
  :n, :checksum, :id, :scope, {change}, :kind, :importance, :trust, :pinned, :traits, :passages, :occurred_at,
  :recorded_at, :valid_from, :valid_to, :expires_at, :place, :session, :speaker, :role, :slot, :replaced_by, :hash,
  :subject, :relation, :object, :metadata, :text
);

-- add_source --
insert into source (scope, item, number, kind, name, checksum)
values (:scope, :item, :number, :kind, :name, :checksum);

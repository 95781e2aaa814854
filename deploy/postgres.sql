-- Run once, as the superuser, when the database is new. The program's role is neither superuser nor above the policies:
-- row-level security holds it back. It makes its own schema.
\getenv password ENGRAIN_DB_PASSWORD
create extension if not exists vector;
create role engrain login nosuperuser nobypassrls password :'password';
select format('grant create on database %I to engrain', current_database()) \gexec

-- Items of all scopes in the order of their ids: a copy reads them page by page.
create index item_anywhere on item (id);

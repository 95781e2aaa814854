-- find_now --
select {now};
